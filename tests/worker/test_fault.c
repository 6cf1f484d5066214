#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gp_test.h"
#include "worker/fault.h"

/* How worker `index` ends that passes "forward" and "exchange" five times each; 0 = it lives. */
static int passed(const char *spec, uint32_t index, uint32_t incarnation, int *passings)
{
    int ends[2], status;
    char byte;

    if (pipe(ends) != 0)
        abort();
    pid_t child = fork();

    if (child == 0) {
        if (gp_fault_setup(spec, index, incarnation, NULL) != GP_OK)
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

TEST(a_fault_strikes_at_the_nth_passing_of_its_point)
{
    int passings, status = passed("exchange:3:kill", 1, 1, &passings);

    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK_INT(2, passings);
    status = passed("commit:1:kill,forward:5:exit", 1, 1, &passings);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 9);
    CHECK_INT(4, passings);
}

TEST(a_fault_strikes_only_the_worker_it_is_meant_for)
{
    int passings;

    CHECK_INT(0, passed("exchange:3:kill@2", 1, 1, &passings));
    CHECK_INT(5, passings);
    CHECK(passed("exchange:3:kill@2", 2, 4, &passings) != 0);
    CHECK(passed("exchange:3:kill@2.1", 2, 1, &passings) != 0);
    CHECK_INT(0, passed("exchange:3:kill@2.1", 2, 2, &passings));
    CHECK_INT(0, passed("exchange:6:kill", 1, 1, &passings));
}

TEST(a_fault_that_is_not_understood_is_refused)
{
    static const char *const wrong[] = { "exchange",         "exchange:0:kill",    "exchange:1:explode",
                                         "exchange:1:kill@", "exchange:1:kill@2.", "exchange:1:kill junk",
                                         "EX:1:kill" };
    gp_error err;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK_STATUS(GP_EINVAL, gp_fault_setup(wrong[i], 1, 1, &err));
        CHECK(!gp_fault_armed);
    }
    CHECK_STATUS(GP_OK, gp_fault_setup(NULL, 1, 1, &err));
    CHECK_STATUS(GP_OK, gp_fault_setup("", 1, 1, &err));
    CHECK(!gp_fault_armed);
}
