/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest test framework, whose lines test_custom_runner.py reads. A main returns 0 whatever failed: PlatformIO
 * takes another status for a crash. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>

static int failures;

/* Ends the test where the condition is false. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("%s:%d:%s:FAIL: %s\n", __FILE__, __LINE__, __func__, #condition);                                   \
            failures++;                                                                                                \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

#define RUN(test)                                                                                                      \
    do {                                                                                                               \
        int before = failures;                                                                                         \
        test();                                                                                                        \
        if (failures == before)                                                                                        \
            printf("%s:%d:%s:PASS\n", __FILE__, __LINE__, #test);                                                      \
    } while (0)

#endif
