/* Unit tests for fault injection. One test compares fault.def with the sources and
 * docs/faults.md. */
#include <dirent.h>
#include <ftw.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "tests/gp_test.h"

/* Run a worker process that passes "forward" and "exchange" five times each. Return its wait
 * status.
 *   spec         faults
 *   index        worker index
 *   incarnation  worker incarnation
 *   passings     set to the number of completed rounds */
static int passed(const char *spec, uint32_t index, uint32_t incarnation, int *passings)
{
    int ends[2], status;
    char byte;

    if (pipe(ends) != 0)
        abort();
    pid_t child = fork();

    if (child == 0) {
        if (gp_fault_setup(spec, GP_FAULT_worker, index, incarnation, NULL) != GP_OK)
            _exit(1);
        for (int i = 0; i < 5; i++) {
            gp_fault_point("forward");
            gp_fault_point("exchange");
            if (write(ends[1], "x", 1) != 1)
                _exit(1);
        }
        _exit(0);
    }
    close(ends[1]);
    for (*passings = 0; read(ends[0], &byte, 1) == 1; ++*passings)
        ;
    close(ends[0]);
    waitpid(child, &status, 0);
    return status;
}

TEST(a_fault_acts_at_the_nth_pass_of_its_point)
{
    int passings, status = passed("exchange:3:kill", 1, 1, &passings);

    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK_INT(2, passings);
    status = passed("commit:1:kill,forward:5:exit", 1, 1, &passings);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 9);
    CHECK_INT(4, passings);
}

TEST(a_fault_acts_only_in_the_worker_that_it_selects)
{
    int passings;

    CHECK_INT(0, passed("exchange:3:kill@2", 1, 1, &passings));
    CHECK_INT(5, passings);
    CHECK(passed("exchange:3:kill@2", 2, 4, &passings) != 0);
    CHECK(passed("exchange:3:kill@2.1", 2, 1, &passings) != 0);
    CHECK_INT(0, passed("exchange:3:kill@2.1", 2, 2, &passings));
    CHECK_INT(0, passed("exchange:6:kill", 1, 1, &passings));
}

TEST(malformed_faults_are_rejected)
{
    static const char *const wrong[] = { "exchange",         "exchange:0:kill",    "exchange:1:explode",
                                         "exchange:1:kill@", "exchange:1:kill@2.", "exchange:1:kill junk",
                                         "EX:1:kill",        "exchage:1:kill" };
    gp_error err;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK_STATUS(GP_EINVAL, gp_fault_setup(wrong[i], GP_FAULT_worker, 1, 1, &err));
        CHECK(!gp_fault_armed);
    }
    CHECK_STATUS(GP_OK, gp_fault_setup(NULL, GP_FAULT_worker, 1, 1, &err));
    CHECK_STATUS(GP_OK, gp_fault_setup("", GP_FAULT_worker, 1, 1, &err));
    CHECK(!gp_fault_armed);
}

TEST(a_fault_point_belongs_to_one_kind_of_process)
{
    CHECK_STATUS(GP_OK, gp_fault_setup("granted:1:kill", GP_FAULT_worker, 1, 1, NULL));
    CHECK(!gp_fault_armed);
    CHECK_STATUS(GP_OK, gp_fault_setup("granted:1:kill", GP_FAULT_scheduler, 1, 1, NULL));
    CHECK(gp_fault_armed);
    CHECK_STATUS(GP_OK, gp_fault_setup(NULL, GP_FAULT_worker, 1, 1, NULL));
    for (const gp_fault_entry *a = gp_fault_points; a->point != NULL; a++)
        for (const gp_fault_entry *b = a + 1; b->point != NULL; b++)
            CHECK(strcmp(a->point, b->point) != 0);
}

/* ---- consistency with sources and documentation ---- */

static bool passed_somewhere[200]; /* by index in gp_fault_points: a source file passes the point */

/* Record all fault points in a C source file; callback for nftw(). */
static int look_for_points(const char *path, const struct stat *facts, int kind, struct FTW *at)
{
    static char text[1 << 20];
    const char *dot = strrchr(path, '.');

    (void)facts;
    (void)at;
    if (kind != FTW_F || dot == NULL || strcmp(dot, ".c") != 0)
        return 0;
    FILE *file = fopen(path, "r");
    size_t got = file == NULL ? 0 : fread(text, 1, sizeof(text) - 1, file);

    if (file != NULL)
        fclose(file);
    text[got] = '\0';
    for (const char *call = text; (call = strstr(call, "gp_fault_point(\"")) != NULL; call++) {
        char point[40] = "";
        bool known = false;

        sscanf(call, "gp_fault_point(\"%39[^\"]", point);
        for (size_t i = 0; gp_fault_points[i].point != NULL; i++)
            if (strcmp(gp_fault_points[i].point, point) == 0)
                known = passed_somewhere[i] = true;
        if (!known)
            GP_TEST_FAIL("%s passes \"%s\", which common/base/system/fault.def does not have", path, point);
    }
    return 0;
}

TEST(fault_table_sources_and_manual_name_the_same_points)
{
    static const char *const folders[] = { "common", "proto", "scheduler", "worker", "client" };
    static char manual[1 << 17];
    char path[600];

    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", getenv("GP_SOURCE_DIR"), folders[i]);
        CHECK_INT(0, nftw(path, look_for_points, 16, FTW_PHYS));
    }
    snprintf(path, sizeof(path), "%s/docs/faults.md", getenv("GP_SOURCE_DIR"));
    FILE *file = fopen(path, "r");

    REQUIRE(file != NULL);
    manual[fread(manual, 1, sizeof(manual) - 1, file)] = '\0';
    fclose(file);
    for (size_t i = 0; gp_fault_points[i].point != NULL; i++) {
        char entry[80];

        if (!passed_somewhere[i])
            GP_TEST_FAIL("nothing passes \"%s\"", gp_fault_points[i].point);
        snprintf(entry, sizeof(entry), "| `%s` |", gp_fault_points[i].point);
        if (strstr(manual, entry) == NULL)
            GP_TEST_FAIL("docs/faults.md has no line for %s", gp_fault_points[i].point);
    }
}

/* Prints the time per pass without judging it, because machines differ. */
TEST(an_unarmed_fault_point_costs_almost_nothing)
{
    enum { PASSINGS = 20000000 };

    CHECK_STATUS(GP_OK, gp_fault_setup(NULL, GP_FAULT_worker, 1, 1, NULL));
    int64_t began = gp_now_ns();

    for (int i = 0; i < PASSINGS; i++) {
        gp_fault_point("forward");
        __asm__ volatile("" ::: "memory");
    }
    printf("     %.2f ns per pass\n", (double)(gp_now_ns() - began) / PASSINGS);
    CHECK(!gp_fault_armed);
}
