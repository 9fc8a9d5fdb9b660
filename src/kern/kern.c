#include "kern.h"
