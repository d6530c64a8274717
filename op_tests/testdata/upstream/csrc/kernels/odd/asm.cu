#include "asm_asm_configs.hpp"
static AiterAsmKernel kernel;
