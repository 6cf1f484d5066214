/* test_slow_step.c: attribute a slow step to a worker and a phase. */
#include "client/cli/train/slow_step.h"
#include "common/base/memory/alloc.h"
#include "tests/gp_test.h"

static char text[200];

/* Add the records for one step on 3 workers. The backward pass of worker 3 takes slow_ms longer,
 * and the others wait for it. */
static bool add(slow_steps *slow, uint64_t step, double slow_ms, int64_t now_ms)
{
    bool said = false;

    for (uint32_t rank = 0; rank < 3; rank++)
        said |= slow_steps_add(slow,
                               &(gp_train_step){ .rank = rank,
                                                 .worker = rank + 1,
                                                 .step = step,
                                                 .data_ms = 1,
                                                 .forward_ms = 10,
                                                 .backward_ms = 20 + (rank == 2 ? slow_ms : 0),
                                                 .exchange_ms = 2,
                                                 .commit_ms = 1,
                                                 .wait_ms = rank == 2 ? 0 : slow_ms },
                               now_ms, text, sizeof(text));
    return said;
}

TEST(a_slow_step_names_the_worker_that_waited_least_and_its_phase)
{
    slow_steps *slow = slow_steps_new(3);
    int reports = 0;

    REQUIRE(slow != NULL);
    CHECK(!add(slow, 1, 900, 1000)); /* the first steps have no usual time yet */
    for (uint64_t step = 2; step <= 40; step++)
        reports += add(slow, step, step % 4 == 0 ? 50 : 0, 1000); /* below the threshold */
    CHECK_INT(0, reports);
    CHECK(add(slow, 41, 900, 2000));
    CHECK_TEXT("step 41 took 0.93 s, usually 0.03 s: worker 3 spent 0.92 s on backward", text);
    CHECK(!add(slow, 42, 900, 3000)); /* at most one line in 5 s */
    CHECK(add(slow, 43, 900, 7000));

    /* All three workers wait, so the report names none. */
    for (uint32_t rank = 0; rank < 3; rank++)
        slow_steps_add(slow, &(gp_train_step){ .rank = rank, .worker = rank + 1, .step = 44, .wait_ms = 900 },
                       20000, text, sizeof(text));
    CHECK_TEXT(
        "step 44 took 0.90 s, usually 0.03 s: all workers waited; other processes may have used the cores",
        text);
    slow_steps_reset(slow, 3);
    CHECK(!add(slow, 45, 900, 40000));
    gp_free(slow);
}
