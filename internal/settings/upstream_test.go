package settings_test

import (
	"errors"
	"testing"

	"github.com/aiter-go/aiter/internal/settings"
)

// A checkout adds modules, whether or not it exists: prebuilt libraries do not need it.
func TestCheckout(t *testing.T) {
	const module = "module_aiter_rmsnorm"
	for value, want := range map[string]bool{"": false, "/none/aiter": true} {
		s := settings.Settings{Getenv: variables(map[string]string{"AITER_CHECKOUT": value})}
		config, err := s.LoadConfig()
		if err != nil {
			t.Fatal(err)
		}
		if config.Has(module) != want {
			t.Errorf("AITER_CHECKOUT=%q: has %s is %t, want %t", value, module, !want, want)
		}
	}
	// The field replaces the variable.
	config, err := settings.Settings{AIter: "/field", Getenv: variables(map[string]string{"AITER_CHECKOUT": "relative"})}.LoadConfig()
	if err != nil || !config.Has(module) {
		t.Errorf("AIter: error %v, want a configuration with %s", err, module)
	}
	s := settings.Settings{Getenv: variables(map[string]string{"AITER_CHECKOUT": "aiter"})}
	var bad *settings.EnvironmentError
	if _, err := s.LoadConfig(); !errors.As(err, &bad) || bad.Name != "AITER_CHECKOUT" {
		t.Errorf("of a relative path: got %v, want an *EnvironmentError of AITER_CHECKOUT", err)
	}
}
