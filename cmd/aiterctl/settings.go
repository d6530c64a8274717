package main

import (
	"errors"
	"strings"

	"github.com/aiter-go/aiter/registry"
)

// invalidCPUSetting says whether an operator refused a variable that the CPU kernels
// themselves read (csrc/include/aiter/cpu_settings.h).
func invalidCPUSetting(err error) bool {
	var refused *registry.OperatorError
	return errors.As(err, &refused) &&
		(strings.Contains(refused.Message, "AITER_NUM_THREADS: expected ") || strings.Contains(refused.Message, "AITER_CPU_ISA: expected "))
}
