#include "plain.h"
#include "ck_tile/core.hpp"  // there is a stand-in
#if ENABLE_CK
#include <ck/ck.hpp>
#endif
