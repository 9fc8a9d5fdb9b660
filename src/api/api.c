#include "incipit.h"
