# As steps.py, for ActiveRecord.
require "active_record"
require "json"
require "stringio"

HOST, PORT, DATABASE = ARGV
CONFIGURATION = {
  adapter: "postgresql", host: HOST, port: PORT.to_i, username: "materialize", database: DATABASE, pool: 5,
}.freeze

def step(title)
  error = nil
  begin
    yield
  rescue Exception => failure # a failed assertion is reported too
    error = "#{failure.class}: #{failure.message.lines.first&.chomp}"[0, 300]
    warn error, failure.message[0, 1000], failure.backtrace.grep(/#{__FILE__}/)
  end
  puts JSON.generate({ step: title, error: error })
  $stdout.flush
end

def equal(actual, expected)
  raise "#{actual.inspect} instead of #{expected.inspect}" unless actual == expected
end

class CreateAccounts < ActiveRecord::Migration[6.1]
  def change
    create_table :accounts do |t|
      t.string :name, null: false, limit: 80
      t.integer :kind, default: 0, null: false
      t.jsonb :settings, null: false, default: {}
      t.timestamps
    end
    add_index :accounts, :name, unique: true
  end
end

class AddEmail < ActiveRecord::Migration[6.1]
  def up
    add_column :accounts, :email, :string
    execute "UPDATE accounts SET email = lower(name) || '@example.org'"
    change_column_null :accounts, :email, false, ""
  end

  def down
    remove_column :accounts, :email
  end
end

class AddNote < ActiveRecord::Migration[6.1]
  disable_ddl_transaction!

  def change
    add_column :accounts, :note, :text
    add_index :accounts, :note, algorithm: :concurrently
  end
end

class Migrations < ActiveRecord::MigrationContext
  def migrations
    [[CreateAccounts, 1], [AddEmail, 2], [AddNote, 3]].map do |type, version|
      ActiveRecord::MigrationProxy.new(type.name, version, "", "").tap { |proxy| proxy.define_singleton_method(:migration) { type.new(type.name, version) } }
    end
  end
end

class Author < ActiveRecord::Base
  has_many :books, dependent: :destroy
  has_many :reviews, through: :books
  enum status: { draft: 0, active: 1 }
  attribute :lead, :interval
  store_accessor :settings, :theme
  validates :name, presence: true
  validates :email, uniqueness: true, allow_nil: true
end

class Book < ActiveRecord::Base
  belongs_to :author, counter_cache: true, touch: true
  has_and_belongs_to_many :tags
  has_many :reviews
  scope :recent, -> { where("published_on > ?", Date.new(2020, 1, 1)) }
end

class Review < ActiveRecord::Base
  belongs_to :book
end

class Tag < ActiveRecord::Base
  has_and_belongs_to_many :books
end

class Versioned < ActiveRecord::Base
end

def connection
  ActiveRecord::Base.connection
end

ActiveRecord::Base.establish_connection(CONFIGURATION)
ActiveRecord::Migration.verbose = false

step "`Schema.define`: tables, types, indexes, references" do
  ActiveRecord::Schema.define(version: 2024_01_01) do
    create_table :authors, force: :cascade do |t|
      t.string :name, null: false
      t.string :email, index: { unique: true }
      t.text :bio
      t.integer :status, default: 0, null: false
      t.integer :books_count, default: 0, null: false
      t.bigint :views, default: 0
      t.float :score
      t.decimal :balance, precision: 10, scale: 2, default: "0.0"
      t.boolean :admin, default: false, null: false
      t.date :born_on
      t.time :wakes_at
      t.datetime :seen_at, precision: 6
      t.column :zoned_at, :timestamptz
      t.binary :photo
      t.json :raw
      t.jsonb :settings, default: {}
      t.uuid :token, default: "gen_random_uuid()"
      t.string :nicknames, array: true, default: []
      t.integer :numbers, array: true
      t.interval :lead
      t.timestamps
      t.index [:status, :name], name: "by_status", order: { name: :desc }
    end
    create_table :books, force: :cascade do |t|
      t.references :author, null: false, foreign_key: { on_delete: :cascade }
      t.string :title, limit: 200, null: false, comment: "The title"
      t.date :published_on
      t.integer :pages
      t.timestamps
    end
    create_table :tags, id: :uuid, default: "gen_random_uuid()" do |t|
      t.string :label
      t.index "lower(label)", name: "by_label", unique: true
    end
    create_join_table :books, :tags, column_options: { type: :bigint } do |t|
      t.index :book_id
    end
    remove_column :books_tags, :tag_id
    add_column :books_tags, :tag_id, :uuid
    create_table :reviews, id: :serial, comment: "What readers say" do |t|
      t.belongs_to :book, foreign_key: true
      t.integer :stars
      t.index :stars, where: "stars > 3", name: "good"
    end
    create_table :versioneds, primary_key: "code", id: :string do |t|
      t.integer :lock_version, default: 0
      t.string :name
    end
    add_check_constraint :reviews, "stars BETWEEN 1 AND 5", name: "stars_range"
  end
  equal connection.tables.sort, %w[ar_internal_metadata authors books books_tags reviews schema_migrations tags versioneds]
end

step "Reflection: columns, indexes, keys" do
  equal connection.primary_key("versioneds"), "code"
  equal connection.indexes("authors").map(&:name).sort, %w[by_status index_authors_on_email]
  equal connection.foreign_keys("books").map { |key| [key.to_table, key.column, key.on_delete] }, [["authors", "author_id", :cascade]]
  equal connection.check_constraints("reviews").map(&:name), ["stars_range"]
  columns = connection.columns("authors").to_h { |column| [column.name, column] }
  equal columns["balance"].sql_type, "numeric(10,2)"
  equal columns["nicknames"].array, true
  equal columns["token"].default_function, "gen_random_uuid()"
  equal connection.table_comment("reviews"), "What readers say"
  equal Author.column_defaults["balance"], 0
  equal connection.index_exists?(:books, :author_id), true
  equal connection.foreign_key_exists?(:books, :authors), true
  equal connection.data_source_exists?("authors"), true
  equal connection.views, []
  equal connection.schema_names.include?("public"), true
  equal connection.current_database, DATABASE
end

step "`SchemaDumper.dump`, and loading the dump" do
  dump = StringIO.new
  ActiveRecord::SchemaDumper.dump(connection, dump)
  text = dump.string
  ['t.decimal "balance", precision: 10, scale: 2, default: "0.0"', 't.string "nicknames", default: [], array: true',
   'add_foreign_key "books", "authors", on_delete: :cascade', 't.index ["stars"], name: "good", where: "(stars > 3)"',
   'comment: "The title"', 'create_table "tags", id: :uuid, default: -> { "gen_random_uuid()" }', 't.interval "lead"',
   'order: { name: :desc }', 'name: "by_label", unique: true',
   ', name: "stars_range"'].each do |line|
    raise "no #{line} in #{text}" unless text.include?(line)
  end
  eval(text)
  again = StringIO.new
  ActiveRecord::SchemaDumper.dump(connection, again)
  equal again.string, text
end

step "Migrations: up, status, down; `CONCURRENTLY`" do
  migrations = Migrations.new([], ActiveRecord::SchemaMigration)
  ActiveRecord::SchemaMigration.create_table
  ActiveRecord::SchemaMigration.delete_all
  migrations.migrate
  equal migrations.current_version, 3
  equal migrations.get_all_versions, [1, 2, 3]
  equal connection.column_exists?(:accounts, :email, :string, null: false), true
  migrations.rollback(2)
  equal connection.columns("accounts").map(&:name), %w[id name kind settings created_at updated_at]
  migrations.migrate
  migrations.migrate(0)
  equal connection.table_exists?(:accounts), false
end

step "`change_column`, `rename_*`, `change_table`, extensions" do
  connection.create_table(:things) { |t| t.string :a; t.string :b, default: "x"; t.integer :n }
  connection.execute("INSERT INTO things (a, n) VALUES ('12', 1)")
  connection.change_column :things, :a, :integer, using: "a::integer"
  connection.change_column :things, :n, :bigint, null: false, default: 5
  connection.change_column_default :things, :b, from: "x", to: "y"
  connection.change_column_comment :things, :b, "text"
  connection.rename_column :things, :b, :c
  connection.add_index :things, %i[a c]
  connection.rename_index :things, "index_things_on_a_and_c", "both"
  connection.rename_table :things, :objects
  connection.change_table(:objects, bulk: true) { |t| t.string :d; t.remove :c; t.timestamps null: true }
  connection.add_reference :objects, :author, foreign_key: true, index: true
  connection.remove_foreign_key :objects, :authors
  connection.remove_index :objects, :author_id
  equal connection.columns("objects").map(&:name), %w[id a n d created_at updated_at author_id]
  equal connection.select_value("INSERT INTO objects (a) VALUES (1) RETURNING id"), 2
  connection.reset_pk_sequence!("objects")
  connection.drop_table :objects, if_exists: true, force: :cascade
  equal connection.extensions.include?("plpgsql"), true
  connection.enable_extension "plpgsql"
end

step "Create, find, change, destroy; all types" do
  Author.reset_column_information
  author = Author.create!(
    name: "Ada", email: "ada@example.org", status: :active, views: 2**40, score: 1.5, balance: "12.50", admin: true,
    born_on: Date.new(1815, 12, 10), wakes_at: "06:45", seen_at: Time.utc(2024, 2, 29, 12, 30, 15.5r),
    zoned_at: Time.utc(2024, 2, 29), photo: "\x00\xFF".b, raw: { "a" => [1] }, theme: "dark",
    nicknames: ["a", "b,c", 'd"'], numbers: [1, nil, 3], lead: 90.minutes
  )
  found = Author.find(author.id)
  equal found.attributes.except("created_at", "updated_at"), author.reload.attributes.except("created_at", "updated_at")
  equal found.balance, BigDecimal("12.5")
  equal found.photo, "\x00\xFF".b
  equal found.seen_at.usec, 500_000
  equal found.nicknames, ["a", "b,c", 'd"']
  equal found.numbers, [1, nil, 3]
  equal found.lead, 90.minutes
  equal found.token.size, 36
  equal found.settings, { "theme" => "dark" }
  found.update!(nicknames: found.nicknames + ["e"], theme: "light", bio: "")
  found.increment!(:views)
  found.touch(:seen_at)
  found.toggle!(:admin)
  equal Author.find_by!(email: "ada@example.org").views, 2**40 + 1
  equal Author.new(name: "Eve", email: "ada@example.org").valid?, false
  temporary = Author.create!(name: "Temporary")
  temporary.destroy
  equal Author.exists?(temporary.id), false
  equal Author.find_or_create_by!(name: "Bob").id, Author.find_or_create_by!(name: "Bob").id
  begin
    Author.create!(name: nil)
  rescue ActiveRecord::RecordInvalid
    begin
      Author.insert!({ name: nil, created_at: Time.now, updated_at: Time.now })
    rescue ActiveRecord::NotNullViolation
      begin
        Tag.create!(label: "x")
        Tag.create!(label: "X")
      rescue ActiveRecord::RecordNotUnique
        next Tag.delete_all
      end
    end
  end
  raise "no error"
end

step "Associations, `includes`, `joins`, `through`" do
  ada = Author.find_by(name: "Ada")
  12.times { |n| ada.books.create!(title: "Book #{n}", pages: n * 10, published_on: Date.new(2015 + n, 1, 1)) }
  ada.books.first.reviews.create!([{ stars: 5 }, { stars: 2 }])
  ada.books.second.tags << Tag.create!(label: "math")
  ada.books.second.tags.create!(label: "engine")
  equal ada.reload.books_count, 12
  equal Author.includes(books: :tags).order(:id).to_a.first.books.map { |book| book.tags.size }.sum, 2
  equal Author.eager_load(:books).where(books: { pages: 20 }).to_a, [ada]
  equal Author.joins(books: :reviews).distinct.pluck(:name), ["Ada"]
  equal Author.left_outer_joins(:books).group(:name).count("books.id"), { "Ada" => 12, "Bob" => 0 }
  equal Author.where.missing(:books).pluck(:name), ["Bob"]
  equal ada.reviews.average(:stars).to_f, 3.5
  equal Book.joins(:tags).merge(Tag.where(label: %w[math other])).count, 1
  equal ada.books.includes(:reviews).references(:reviews).where("reviews.stars > 3").limit(3).to_a.size, 1
  equal ada.books.second.tags.order(:label).pluck(:label), %w[engine math]
end

step "`where`, `group`, `having`, `order`, `pluck`, calculations" do
  equal Book.recent.count, 6
  equal Book.where(pages: 20..50).order(pages: :desc).pluck(:pages), [50, 40, 30, 20]
  equal Book.where.not(pages: nil).where("title ILIKE ?", "book 1%").order(:id).ids, Book.where(title: ["Book 1", "Book 10", "Book 11"]).order(:id).ids
  equal Book.where(pages: 10).or(Book.where(pages: 20)).count, 2
  equal Book.group("extract(year from published_on) > 2020").having("count(*) > 1").sum(:pages), { false => 150, true => 510 }
  equal Book.group(:author_id, Arel.sql("date_trunc('decade', published_on)::date")).count.values.sort, [5, 7]
  equal [Book.minimum(:pages), Book.maximum(:pages), Book.average(:pages).to_i, Book.sum(:pages)], [0, 110, 55, 660]
  equal Book.order(Arel.sql("pages % 30"), :id).limit(2).offset(1).pluck(:pages), [30, 60]
  equal Book.select("pages, rank() OVER (ORDER BY pages DESC) AS place").order("place").first.place, 1
  equal Book.distinct.order(:author_id).pluck(:author_id).size, 1
  equal Book.where("id IN (?)", Book.select(:id).where(pages: 10)).count, 1
  equal Book.from(Book.where("pages > 50"), :books).count, 6
  equal Book.in_order_of(:pages, [30, 10]).pluck(:pages), [30, 10] if Book.respond_to?(:in_order_of)
  equal Book.exists?(pages: 10) && Book.where(pages: 1).none?, true
  equal Book.find_by_sql(["SELECT * FROM books WHERE pages = :pages", { pages: 10 }]).size, 1
  equal Book.where(pages: 10).explain.include?("EXPLAIN"), true
  equal Author.where(admin: false).unscope(:where).reorder(name: :desc).first.name, "Bob"
  equal Book.optimizer_hints("SeqScan(books)").annotate("a comment").where(pages: 10).count, 1
end

step "jsonb, arrays, enum in conditions" do
  equal Author.where("settings @> ?", { theme: "light" }.to_json).pluck(:name), ["Ada"]
  equal Author.where("settings ->> 'theme' = ?", "light").count, 1
  equal Author.where("settings ? 'theme'").count, 1
  equal Author.where("? = ANY (nicknames)", "e").count, 1
  equal Author.where("nicknames && ARRAY[?]::varchar[]", %w[e z]).count, 1
  equal Author.where(nicknames: '{a,"b,c","d\\"",e}').count, 1
  equal Author.active.count, 1
  equal Author.group(:status).count, { "draft" => 1, "active" => 1 }
end

step "`insert_all`, `upsert_all`, `update_all`, `delete_all`" do
  now = Time.now
  rows = %w[Carl Dora].map { |name| { name: name, email: "#{name}@example.org".downcase, created_at: now, updated_at: now } }
  equal Author.insert_all(rows, returning: %w[id name]).rows.map(&:last), %w[Carl Dora]
  equal Author.insert_all(rows).rows, []
  Author.upsert_all(rows.map { |row| row.merge(bio: "again") }, unique_by: :email)
  equal Author.where(bio: "again").count, 2
  Author.upsert({ id: Author.find_by(name: "Carl").id, name: "Karl", created_at: now, updated_at: now })
  equal Author.where(name: "Karl").update_all(["views = views + ?, updated_at = now()", 3]), 1
  equal Author.where(name: "Karl").pluck(:views), [3]
  equal Author.update_counters(Author.find_by(name: "Karl").id, views: 1), 1
  equal Book.joins(:author).where(authors: { name: "Ada" }).update_all(pages: 1), 12
  equal Review.joins(book: :author).where(authors: { name: "Ada" }).delete_all, 2
  equal Author.where(name: %w[Karl Dora]).delete_all, 2
  equal Book.order(:id).limit(2).update_all(pages: 2), 2
end

step "Transactions with `requires_new`, isolation, callbacks" do
  Author.transaction do
    Author.create!(name: "Outer")
    Author.transaction(requires_new: true) do
      Author.create!(name: "Inner")
      raise ActiveRecord::Rollback
    end
    begin
      Author.transaction(requires_new: true) { Author.insert!({ id: Author.first.id, name: "x", created_at: Time.now, updated_at: Time.now }) }
    rescue ActiveRecord::RecordNotUnique
      Author.create!(name: "After")
    end
  end
  equal Author.where(name: %w[Outer Inner After]).order(:name).pluck(:name), %w[After Outer]
  Author.transaction(isolation: :serializable) { Author.where(name: %w[Outer After]).destroy_all }
  equal Author.where(name: %w[Outer After]).count, 0
end

step "`lock`, `with_lock`, optimistic locks, advisory locks" do
  author = Author.first
  author.with_lock { author.update!(bio: "locked") }
  Author.transaction do
    equal Author.lock.find(author.id).bio, "locked"
    equal Author.lock("FOR UPDATE SKIP LOCKED").order(:id).limit(1).to_a, [author]
    equal Author.lock("FOR NO KEY UPDATE NOWAIT").find(author.id), author
  end
  Versioned.create!(code: "a", name: "one")
  stale = Versioned.find("a")
  Versioned.find("a").update!(name: "two")
  begin
    stale.update!(name: "three")
    raise "no error"
  rescue ActiveRecord::StaleObjectError
    equal Versioned.find("a").name, "two"
  end
  equal connection.get_advisory_lock(12), true
  equal connection.release_advisory_lock(12), true
end

step "`find_each`, `in_batches`, `find_in_batches`" do
  equal Book.find_each(batch_size: 5).count, 12
  equal Book.in_batches(of: 5).map { |batch| batch.update_all("pages = pages + 1") }, [5, 5, 2]
  equal Book.find_in_batches(batch_size: 7).map(&:size), [7, 5]
end

step "Connection pool, prepared statements, statement cache" do
  threads = 5.times.map { |n| Thread.new { ActiveRecord::Base.connection_pool.with_connection { Author.where(name: "Ada").count } } }
  equal threads.map(&:value), [1] * 5
  result = connection.exec_query("SELECT $1::int + 1 AS n", "SQL", [ActiveRecord::Relation::QueryAttribute.new("n", 1, ActiveRecord::Type::Integer.new)], prepare: true)
  equal result.to_a, [{ "n" => 2 }]
  3.times { |n| Book.find(Book.first.id) }
  connection.clear_cache!
  connection.reconnect!
  equal connection.active?, true
  ActiveRecord::Base.establish_connection(CONFIGURATION.merge(prepared_statements: false, variables: { statement_timeout: "10s" }, schema_search_path: "public", min_messages: "warning"))
  equal Author.where(name: "Ada").count, 1
  equal connection.select_value("SHOW statement_timeout"), "10s"
  connection.disable_referential_integrity { Tag.delete_all }
  connection.truncate_tables("reviews", "books_tags")
end

step "`drop_table` with `force: :cascade`, `drop_schema`" do
  connection.create_schema("other")
  connection.create_table("other.things") { |t| t.string :name }
  equal connection.table_exists?("other.things"), true
  connection.drop_schema("other")
  connection.tables.each { |table| connection.drop_table(table, force: :cascade) }
  equal connection.tables, []
end
