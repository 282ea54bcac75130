// Package steps runs the steps of a session, as steps.py does. The program's arguments are its own source, the host, port and
// database.
package steps

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// URL is the address of the session's database.
var URL = fmt.Sprintf("postgres://materialize@%s:%s/%s?sslmode=disable", os.Args[2], os.Args[3], os.Args[4])

// Step is the work of a step with its title.
type Step struct {
	title string
	work  func() error
}

// Titled gives a step its title.
func Titled(title string, work func() error) Step {
	return Step{title, work}
}

// Run runs the steps and prints one line of JSON per step: its title and its error, if any.
func Run(steps ...Step) {
	for _, step := range steps {
		var message *string
		if err := attempt(step.work); err != nil {
			fmt.Fprintln(os.Stderr, step.title+":", err)
			first, _, _ := strings.Cut(err.Error(), "\n")
			message = &first
		}
		line, err := json.Marshal(struct {
			Step  string  `json:"step"`
			Error *string `json:"error"`
		}{step.title, message})
		if err != nil {
			panic(err)
		}
		fmt.Println(strings.ReplaceAll(string(line), `{"step":`, `{"step": `))
	}
}

func attempt(work func() error) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%v", reason)
		}
	}()
	return work()
}

// Must panics with the error, if there is one, which is then the error of the step.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}

// Value returns the value, or panics with the error.
func Value[T any](value T, err error) T {
	Must(err)
	return value
}

// Equal panics if the values differ.
func Equal(actual, expected any) {
	if a, e := fmt.Sprintf("%#v", actual), fmt.Sprintf("%#v", expected); a != e {
		panic(fmt.Sprintf("%s instead of %s", a, e))
	}
}

// Text returns the values' texts with spaces between them.
func Text(values ...any) string {
	return strings.TrimSuffix(fmt.Sprintln(values...), "\n")
}
