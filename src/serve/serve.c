#include "serve.h"
