/* cmocka asks its users for these headers before its own. */
#ifndef CMOCKA_TESTS_H
#define CMOCKA_TESTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
