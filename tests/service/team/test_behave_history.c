/* test_behave_history.c: calls while workers and schedulers are killed; the history is checked like
 * a simulated one. */
#include <errno.h>

#include "tests/service/team/behave.h"
#include "tests/service/killer.h"
#include "tests/sim/history.h"

enum { CALLS = 400, AHEAD = 40, ATTEMPTS = 6, KILL_EVERY = 15, SESSION = 1 };

static char history_path[112];
static gp_future *futures[CALLS + 1]; /* by number, starting at 1 */

static void note(history_entry entry)
{
    if (!history_append(history_path, entry))
        GP_TEST_FAIL("no history: %s", strerror(errno));
}

static void submit(int number)
{
    behave_tally argument = { .number = number, .ms = number % 4 };
    history_entry entry = { .kind = HISTORY_SUBMIT, .session = SESSION, .seq = (uint64_t)number };

    snprintf(argument.path, sizeof(argument.path), "%s", history_path);
    note(entry);
    entry.kind = HISTORY_ACCEPT; /* before the call can start */
    entry.id = (uint64_t)number;
    entry.attempt = ATTEMPTS;
    note(entry);
    futures[number] =
        call_with((gp_parfeval_request){ .attempts = ATTEMPTS }, "recorded", &argument, sizeof(argument));
}

/* Take the next completed result and store its worker's pid (0: the call failed). false: none left,
 * or a timeout. */
static bool take_result(pid_t *giver)
{
    gp_future *future = NULL;
    behave_recorded recorded = { 0 };
    const void *data = NULL;
    size_t bytes = 0;
    int number = 1;
    gp_status status = gp_team_as_completed(team, &future, POOLS_TIMEOUT_MS, &err);

    if (status != GP_OK) {
        GP_TEST_FAIL("no next result: %s", err.message);
        return false;
    }
    while (number <= CALLS && futures[number] != future)
        number++;
    status = gp_future_result(future, &data, &bytes, &err);
    if (status == GP_OK && bytes == sizeof(recorded))
        memcpy(&recorded, data, sizeof(recorded));
    if (status == GP_OK)
        CHECK_INT(number, recorded.number);
    else
        CHECK_STATUS(GP_EPEER, status); /* exceeded the limit for worker failures */
    *giver = (pid_t)recorded.pid;
    note((history_entry){ .kind = HISTORY_RESULT,
                          .session = SESSION,
                          .seq = (uint64_t)number,
                          .id = (uint64_t)number,
                          .outcome = (int32_t)status });
    return true;
}

TEST(every_call_has_one_result_and_none_runs_after_it_despite_kills)
{
    static const history_rules rules = { .attempts_grow = true, .gapless = true, .good = GP_OK };
    scheduler_killer schedulers = { .first_ms = 50, .every_ms = 150, .times = 3 };
    history *h = history_new(&rules);
    int submitted = 0, results = 0, killed = 0;
    pid_t giver = 0;
    history_counts counts;

    BEGIN(3);
    snprintf(history_path, sizeof(history_path), "%s/history", pools_root);
    find("recorded");
    killer_start(&schedulers);
    while (results < CALLS && gp_test_failures == 0) {
        while (submitted < CALLS && submitted < results + AHEAD)
            submit(++submitted);
        results += take_result(&giver);

        /* Kill the worker of the last result: workers that fail five times during startup are
         * abandoned. */
        if (results % KILL_EVERY == 0 && giver != 0)
            killed += kill(giver, SIGKILL) == 0;
    }
    killer_join(&schedulers);

    /* each result was returned once */
    CHECK_STATUS(GP_ENOENT, gp_team_as_completed(team, &futures[0], POOLS_TIMEOUT_MS, &err));
    if (!history_read(h, history_path) || !history_close(h))
        GP_TEST_FAIL("%s: %s", history_check(h), history_failure(h));
    counts = history_get_counts(h);
    printf("     %d results, %d starts (%d of them repeated); %d workers and %d schedulers were "
           "killed\n",
           (int)counts.of[HISTORY_RESULT], (int)counts.of[HISTORY_START], (int)counts.again, killed,
           schedulers.killed);
    CHECK_INT(CALLS, counts.of[HISTORY_RESULT]);
    CHECK(killed > 0 && schedulers.killed > 0 && counts.again > 0);
    for (int i = 1; i <= CALLS; i++)
        gp_future_free(futures[i]);
    history_free(h);
}
