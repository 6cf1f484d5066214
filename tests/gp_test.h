/* gp_test.h: the test harness.
 *
 * TEST(a_short_statement) { ... } registers a test; including this header provides main(). A failed
 * CHECK prints a message and continues, so one run shows all failures. SKIP() ends the test with a
 * reason, and a program that skips all tests exits with 77. TEARDOWN() { ... } releases what the
 * tests of a file share. `test_x NAME` runs the tests whose names contain NAME. */
#ifndef GP_TEST_H
#define GP_TEST_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/error.h"

typedef struct gp_test_case {
    const char *name;
    void (*run)(void);
    struct gp_test_case *next;
} gp_test_case;

static gp_test_case *gp_test_first;
static gp_test_case **gp_test_last __attribute__((unused)) = &gp_test_first;
static int gp_test_failures; /* failures in the running test */
static bool gp_test_skipped __attribute__((unused));
static void (*gp_test_teardown)(void) __attribute__((unused));

#define TEST(name)                                                                                           \
    static void test_##name(void);                                                                           \
    static gp_test_case case_##name = { #name, test_##name, NULL };                                          \
    __attribute__((constructor)) static void register_##name(void)                                           \
    {                                                                                                        \
        *gp_test_last = &case_##name;                                                                        \
        gp_test_last = &case_##name.next;                                                                    \
    }                                                                                                        \
    static void test_##name(void)

/* TEARDOWN() { ... } defines a function that runs after each test of the file, even if a REQUIRE
 * ended the test. */
#define TEARDOWN()                                                                                           \
    static void test_teardown(void);                                                                         \
    __attribute__((constructor)) static void register_teardown(void)                                         \
    {                                                                                                        \
        gp_test_teardown = test_teardown;                                                                    \
    }                                                                                                        \
    static void test_teardown(void)

#define GP_TEST_FAIL(...)                                                                                    \
    do {                                                                                                     \
        printf("    %s:%d: ", __FILE__, __LINE__);                                                           \
        printf(__VA_ARGS__);                                                                                 \
        printf("\n");                                                                                        \
        gp_test_failures++;                                                                                  \
    } while (0)

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            GP_TEST_FAIL("not true: %s", #condition);                                                        \
    } while (0)

/* End the test unless the condition holds; for preconditions of the rest. */
#define REQUIRE(condition)                                                                                   \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            GP_TEST_FAIL("required: %s", #condition);                                                        \
            return;                                                                                          \
        }                                                                                                    \
    } while (0)

#define CHECK_INT(expected, actual)                                                                          \
    do {                                                                                                     \
        long long e_ = (long long)(expected), a_ = (long long)(actual);                                      \
        if (e_ != a_)                                                                                        \
            GP_TEST_FAIL("%s is %lld, expected %lld", #actual, a_, e_);                                      \
    } while (0)

#define CHECK_NEAR(expected, actual, tolerance)                                                              \
    do {                                                                                                     \
        double e_ = (expected), a_ = (actual), t_ = (tolerance);                                             \
        if (!(fabs(e_ - a_) <= t_))                                                                          \
            GP_TEST_FAIL("%s is %.17g, expected %.17g within %g", #actual, a_, e_, t_);                      \
    } while (0)

#define CHECK_TEXT(expected, actual)                                                                         \
    do {                                                                                                     \
        const char *e_ = (expected), *a_ = (actual);                                                         \
        if (a_ == NULL || strcmp(e_, a_) != 0)                                                               \
            GP_TEST_FAIL("%s is \"%s\", expected \"%s\"", #actual, a_ == NULL ? "(null)" : a_, e_);          \
    } while (0)

#define CHECK_CONTAINS(text, part)                                                                           \
    do {                                                                                                     \
        const char *t_ = (text), *p_ = (part);                                                               \
        if (strstr(t_, p_) == NULL)                                                                          \
            GP_TEST_FAIL("\"%s\" does not contain \"%s\"", t_, p_);                                          \
    } while (0)

#define CHECK_STATUS(expected, call)                                                                         \
    do {                                                                                                     \
        gp_status e_ = (expected), a_ = (call);                                                              \
        if (e_ != a_)                                                                                        \
            GP_TEST_FAIL("%s returned %s, expected %s", #call, gp_status_name(a_), gp_status_name(e_));      \
    } while (0)

/* End the test and print the gp_error unless the call succeeds. */
#define REQUIRE_OK(call, err)                                                                                \
    do {                                                                                                     \
        gp_status a_ = (call);                                                                               \
        if (a_ != GP_OK) {                                                                                   \
            GP_TEST_FAIL("%s: %s: %s", #call, gp_status_name(a_), (err).message);                            \
            return;                                                                                          \
        }                                                                                                    \
    } while (0)

#define SKIP(...)                                                                                            \
    do {                                                                                                     \
        printf("SKIP: ");                                                                                    \
        printf(__VA_ARGS__);                                                                                 \
        printf("\n");                                                                                        \
        gp_test_skipped = true;                                                                              \
        return;                                                                                              \
    } while (0)

/* Fail the n-th allocation for n = 1, 2, ... until an expression that returns gp_status succeeds.
 * Every failure must be GP_ENOMEM without a leak. `undo` releases the result of the success. */
#define CHECK_EVERY_ALLOCATION(call, undo)                                                                   \
    do {                                                                                                     \
        gp_status walked_ = GP_ENOMEM;                                                                       \
        for (uint64_t n_ = 1; walked_ == GP_ENOMEM && n_ < 10000; n_++) {                                    \
            int64_t live_ = gp_alloc_get_stats().live;                                                       \
            gp_alloc_fail_nth(n_);                                                                           \
            walked_ = (call);                                                                                \
            gp_alloc_fail_nth(0);                                                                            \
            if (walked_ == GP_OK) {                                                                          \
                undo;                                                                                        \
            } else if (walked_ != GP_ENOMEM) {                                                               \
                GP_TEST_FAIL("allocation %llu failed and %s returned %s", (unsigned long long)n_, #call,     \
                             gp_status_name(walked_));                                                       \
            }                                                                                                \
            if (gp_alloc_get_stats().live != live_)                                                          \
                GP_TEST_FAIL("%s leaked %lld blocks when allocation %llu failed", #call,                     \
                             (long long)(gp_alloc_get_stats().live - live_), (unsigned long long)n_);        \
        }                                                                                                    \
    } while (0)

/* A benchmark that uses the checks defines its own main(). */
#ifndef GP_TEST_NO_MAIN
int main(int count, char **arguments)
{
    int passed = 0, failed = 0, skipped = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    for (gp_test_case *c = gp_test_first; c != NULL; c = c->next) {
        if (count > 1 && strstr(c->name, arguments[1]) == NULL)
            continue;
        gp_test_failures = 0;
        gp_test_skipped = false;
        c->run();
        if (gp_test_teardown != NULL)
            gp_test_teardown();
        if (gp_test_failures != 0)
            failed++;
        else if (gp_test_skipped)
            skipped++;
        else
            passed++;
        printf("%s %s\n", gp_test_failures != 0 ? "FAIL" : gp_test_skipped ? "skip" : "ok  ", c->name);
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    if (failed != 0 || passed + skipped == 0)
        return 1;
    return passed == 0 ? 77 : 0;
}
#endif

#endif
