// A session of GORM, as its users write it.
package main

import (
	"errors"
	"fmt"
	"time"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"

	. "tidewire/clients/steps"
)

var db *gorm.DB

type User struct {
	gorm.Model
	Name    string  `gorm:"size:100;not null;index"`
	Email   *string `gorm:"uniqueIndex"`
	Age     uint8   `gorm:"check:age > 0;default:18"`
	Balance float64 `gorm:"type:numeric(10,2)"`
	Active  bool    `gorm:"default:true"`
	Orders  []Order
	Groups  []Group `gorm:"many2many:user_groups"`
}

type Order struct {
	ID     uint `gorm:"primaryKey"`
	UserID uint
	Title  string
	Placed time.Time         `gorm:"autoCreateTime"`
	Meta   map[string]string `gorm:"serializer:json"`
}

type Group struct {
	ID   uint
	Name string `gorm:"unique;comment:shown to users"`
}

func migrate() error {
	db = Value(gorm.Open(postgres.Open(URL), &gorm.Config{Logger: logger.Discard, TranslateError: true}))
	for range 2 {
		Must(db.AutoMigrate(&User{}, &Order{}, &Group{}))
	}
	Equal(db.Migrator().HasTable("user_groups"), true)
	Equal(db.Migrator().HasColumn(&User{}, "balance"), true)
	Equal(db.Migrator().HasIndex(&User{}, "Email"), true)
	Equal(db.Migrator().HasConstraint(&Order{}, "fk_users_orders"), true)
	return nil
}

type wider struct {
	ID   uint
	Name string `gorm:"size:200;not null"`
	City *string
}

func (wider) TableName() string { return "users" }

func alter() error {
	Must(db.Migrator().AddColumn(&wider{}, "City"))
	Must(db.Migrator().AlterColumn(&wider{}, "Name"))
	for _, column := range Value(db.Migrator().ColumnTypes("users")) {
		if length, ok := column.Length(); column.Name() == "name" && ok {
			Equal(length, int64(200))
		}
	}
	Must(db.Migrator().RenameColumn(&wider{}, "city", "town"))
	Must(db.Migrator().DropColumn(&wider{}, "town"))
	indexes := Value(db.Migrator().GetIndexes(&User{}))
	Equal(len(indexes) >= 3, true)
	return nil
}

func create() error {
	email := "ada@example.org"
	user := User{Name: "Ada", Email: &email, Age: 36, Balance: 12.5, Orders: []Order{{Title: "first", Meta: map[string]string{"a": "b"}}},
		Groups: []Group{{Name: "staff"}}}
	Must(db.Create(&user).Error)
	Equal(Text(user.ID, user.Orders[0].ID, user.Groups[0].ID), "1 1 1")
	users := []User{}
	for n := range 20 {
		users = append(users, User{Name: fmt.Sprintf("user %d", n)})
	}
	Must(db.CreateInBatches(users, 7).Error)
	Equal(users[19].ID, uint(21))
	Equal(users[19].Age, uint8(18))
	return nil
}

func find() error {
	var user User
	Must(db.Preload("Orders").Preload("Groups").First(&user, "name = ?", "Ada").Error)
	Equal(Text(user.Orders[0].Meta, user.Groups[0].Name), "map[a:b] staff")
	var count int64
	Must(db.Model(&User{}).Where("name LIKE ?", "user%").Or("id IN ?", []int{1}).Count(&count).Error)
	Equal(count, int64(21))
	var page []User
	Must(db.Joins("LEFT JOIN orders ON orders.user_id = users.id").Where("orders.id IS NULL").Order("users.id desc").Limit(5).
		Offset(2).Find(&page).Error)
	Equal(page[0].ID, uint(19))
	var groups []struct {
		Age   int
		Total int
	}
	Must(db.Model(&User{}).Select("age, count(*) AS total").Group("age").Having("count(*) > ?", 0).Order("age").Scan(&groups).Error)
	Equal(Text(groups), "[{18 20} {36 1}]")
	Equal(errors.Is(db.First(&User{}, 1000).Error, gorm.ErrRecordNotFound), true)
	return nil
}

func update() error {
	Must(db.Model(&User{}).Where("id = ?", 1).Updates(map[string]any{"balance": gorm.Expr("balance * ?", 2), "active": false}).Error)
	var user User
	Must(db.Clauses(clause.Returning{}).Model(&user).Where("id = ?", 1).Update("age", 37).Error)
	Equal(Text(user.Balance, user.Active, user.Age), "25 false 37")
	user.Name = "Ada L."
	return db.Save(&user).Error
}

func upsert() error {
	group := Group{ID: 1, Name: "crew"}
	Must(db.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"name"})}).
		Create(&group).Error)
	Must(db.Clauses(clause.OnConflict{DoNothing: true}).Create(&Group{ID: 1, Name: "other"}).Error)
	var found Group
	Must(db.FirstOrCreate(&found, Group{Name: "crew"}).Error)
	Equal(found.ID, uint(1))
	err := db.Create(&Group{ID: 2, Name: "crew"}).Error
	Equal(errors.Is(err, gorm.ErrDuplicatedKey), true)
	return nil
}

func remove() error {
	Must(db.Delete(&User{}, []int{20, 21}).Error)
	var count int64
	Must(db.Unscoped().Model(&User{}).Where("deleted_at IS NOT NULL").Count(&count).Error)
	Equal(count, int64(2))
	return db.Unscoped().Delete(&User{}, 21).Error
}

func transactions() error {
	err := db.Transaction(func(outer *gorm.DB) error {
		var locked User
		Must(outer.Clauses(clause.Locking{Strength: "UPDATE", Options: clause.LockingOptionsNoWait}).First(&locked, 1).Error)
		Must(outer.Create(&Group{ID: 10, Name: "outer"}).Error)
		inner := outer.Transaction(func(nested *gorm.DB) error {
			Must(nested.Create(&Group{ID: 11, Name: "inner"}).Error)
			return errors.New("undone")
		})
		Equal(inner.Error(), "undone")
		return nil
	})
	Must(err)
	var count int64
	Must(db.Model(&Group{}).Where("id >= 10").Count(&count).Error)
	Equal(count, int64(1))
	return nil
}

func associations() error {
	user := User{Model: gorm.Model{ID: 1}}
	Must(db.Model(&user).Association("Groups").Append(&Group{ID: 20, Name: "more"}))
	Equal(db.Model(&user).Association("Groups").Count(), int64(2))
	Must(db.Model(&user).Association("Groups").Clear())
	Equal(db.Model(&user).Association("Groups").Count(), int64(0))
	return nil
}

func rows() error {
	batches := 0
	Must(db.Model(&User{}).FindInBatches(&[]User{}, 6, func(_ *gorm.DB, _ int) error {
		batches++
		return nil
	}).Error)
	Equal(batches, 4)
	var total int
	Must(db.Raw("SELECT sum(n) FROM unnest(ARRAY[1, 2, 3]) n WHERE n > @low", map[string]any{"low": 1}).Scan(&total).Error)
	Equal(total, 5)
	return nil
}

func drop() error {
	return db.Migrator().DropTable("user_groups", &Order{}, &User{}, &Group{})
}

func main() {
	Run(
		Titled("`AutoMigrate`, twice", migrate),
		Titled("Migrator: add, alter, rename and drop columns", alter),
		Titled("`Create` with associations, in batches", create),
		Titled("`Preload`, joins, groups, pages", find),
		Titled("`Updates`, `Save`, RETURNING", update),
		Titled("`OnConflict`, `FirstOrCreate`", upsert),
		Titled("Soft deletes", remove),
		Titled("Nested transactions, row locks", transactions),
		Titled("Many to many", associations),
		Titled("`FindInBatches`, `Raw`", rows),
		Titled("`DropTable`", drop),
	)
}
