/* load.c: the load of a soak beside commands: calls with a checked history, and history tools.
 *
 *   soak_load calls FILE COUNT     run COUNT calls on one or two workers, at most AHEAD in
 *                                  flight; each call appends its start and finish to FILE; then
 *                                  check the history
 *   soak_load fill COUNT           submit and cancel COUNT background jobs
 *   soak_load note FILE KIND ID    append an entry (start, finish) for ID [the current job]
 *   soak_load check FILE [SESSION] check a history (tests/sim/history.h); SESSION: its owner failed
 *
 * Exit codes: 0: valid, 1: invalid history, 3: refused by the pool with a message, 9: wrong
 * arguments. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gradpool.h"
#include "tests/service/team/tasks/behave_tasks.h"
#include "tests/sim/history.h"

enum { AHEAD = 8, ATTEMPTS = 1000, SESSION = 1, COUNT_MAX = 10000 };
enum { BROKEN = 1, REFUSED = 3, USAGE = 9 };

static const char *file;
static gp_future *futures[COUNT_MAX + 1]; /* by number, starting at 1 */

static void note(history_entry entry)
{
    if (history_append(file, entry))
        return;
    fprintf(stderr, "soak_load: %s: %s\n", file, strerror(errno));
    exit(BROKEN);
}

/* ---- calls ---- */

static gp_status submit(gp_team *team, const gp_function *function, int number, gp_error *err)
{
    behave_tally argument = { .number = number, .ms = number % 4 };
    history_entry entry = { .kind = HISTORY_SUBMIT, .session = SESSION, .seq = (uint64_t)number };
    gp_parfeval_request request = {
        .function = function, .argument = &argument, .bytes = sizeof(argument), .attempts = ATTEMPTS
    };

    snprintf(argument.path, sizeof(argument.path), "%s", file);
    note(entry);
    entry.kind = HISTORY_ACCEPT; /* before the call can start */
    entry.id = (uint64_t)number;
    entry.attempt = ATTEMPTS;
    note(entry);
    return gp_parfeval(&futures[number], team, &request, err);
}

static gp_status take_result(gp_team *team, int count, gp_error *err)
{
    gp_future *future = NULL;
    const void *data;
    size_t bytes;
    int number = 1;
    gp_status status = gp_team_as_completed(team, &future, -1, err);

    if (status != GP_OK)
        return status;
    while (number <= count && futures[number] != future)
        number++;
    status = gp_future_result(future, &data, &bytes, err);
    if (status == GP_OK && bytes != sizeof(behave_recorded)) {
        printf("call %d has a result of %zu bytes\n", number, bytes);
        exit(BROKEN);
    }
    if (status == GP_OK && ((const behave_recorded *)data)->number != number) {
        printf("call %d has the result of %lld\n", number,
               (long long)((const behave_recorded *)data)->number);
        exit(BROKEN);
    }
    if (status == GP_OK)
        note((history_entry){
            .kind = HISTORY_RESULT, .session = SESSION, .seq = (uint64_t)number, .id = (uint64_t)number });
    return status;
}

static gp_status calls_run(gp_team *team, int count, gp_error *err)
{
    const char *build = getenv("GP_BUILD_DIR");
    const gp_function *function;
    char name[600];
    int submitted = 0, results = 0;
    gp_status status;

    snprintf(name, sizeof(name), "%s/lib/behave_tasks.so:recorded", build == NULL ? "." : build);
    status = gp_function_find(&function, team, name, err);
    while (status == GP_OK && results < count) {
        while (status == GP_OK && submitted < count && submitted < results + AHEAD)
            status = submit(team, function, ++submitted, err);
        if (status == GP_OK)
            status = take_result(team, count, err);
        results += status == GP_OK;
    }
    return status;
}

/* ---- jobs in the scheduler's memory ---- */

static int fill(int count)
{
    static const char *const words[] = { "spmd", "-n", "1", "--", "true", NULL };
    static gp_job_request requests[COUNT_MAX];
    static uint64_t jobs[COUNT_MAX];
    gp_pool *pool = NULL;
    uint32_t canceled;
    gp_error err;
    gp_status status = gp_pool_open(&pool, NULL, &err);

    for (int i = 0; i < count; i++)
        requests[i].words = words;
    if (status == GP_OK)
        status = gp_job_submit_many(jobs, pool, requests, (size_t)count, &err);
    if (status == GP_OK)
        status = gp_job_cancel(&canceled, pool, 0, &err);
    if (status != GP_OK)
        fprintf(stderr, "soak_load: %s: %s\n", gp_status_name(status), err.message);
    gp_pool_close(pool);
    return status == GP_OK ? 0 : REFUSED;
}

/* ---- histories ---- */

static int check(uint64_t dead)
{
    static const history_rules rules = { .attempts_grow = true, .good = 0 };

    /* commands do not know their attempt number */
    static const history_rules of_jobs = { .good = 0 };
    history *h = history_new(strstr(file, "jobs") != NULL ? &of_jobs : &rules);
    bool whole;

    if (dead != 0)
        note((history_entry){ .kind = HISTORY_VOID, .session = dead });
    whole = history_read(h, file) && history_close(h);
    if (!whole)
        printf("%s: %s\n", history_check(h), history_failure(h));
    else
        printf("%" PRIu64 " results, %" PRIu64 " starts, %" PRIu64 " of them not the first\n",
               history_get_counts(h).of[HISTORY_RESULT], history_get_counts(h).of[HISTORY_START],
               history_get_counts(h).again);
    history_free(h);
    return whole ? 0 : BROKEN;
}

static int calls(int count)
{
    gp_lease_request lease = { .workers_min = 1, .workers_max = 2 };
    gp_pool *pool = NULL;
    gp_team *team = NULL;
    gp_error err;
    gp_status status = gp_pool_open(&pool, NULL, &err);

    if (status == GP_OK)
        status = gp_team_open(&team, pool, &(gp_team_options){ .lease = lease, .purpose = "calls" }, &err);
    if (status == GP_OK)
        status = calls_run(team, count, &err);
    if (status != GP_OK)
        fprintf(stderr, "soak_load: %s: %s\n", gp_status_name(status), err.message);
    for (int i = 1; i <= count; i++)
        gp_future_free(futures[i]);
    gp_team_close(team);
    gp_pool_close(pool);
    int checked = check(status == GP_OK ? 0 : SESSION); /* a failed team loses all calls */

    return checked != 0 ? checked : status == GP_OK ? 0 : REFUSED;
}

int main(int count, char **words)
{
    const char *job = getenv("GRADPOOL_JOB");

    if (count < 3)
        return USAGE;
    if (strcmp(words[1], "fill") == 0 && count == 3 && atoi(words[2]) > 0 && atoi(words[2]) <= COUNT_MAX)
        return fill(atoi(words[2]));
    file = words[2];
    if (strcmp(words[1], "calls") == 0 && count == 4 && atoi(words[3]) > 0 && atoi(words[3]) <= COUNT_MAX)
        return calls(atoi(words[3]));
    if (strcmp(words[1], "check") == 0)
        return check(count > 3 ? strtoull(words[3], NULL, 16) : 0);
    if (strcmp(words[1], "note") != 0 || count < 4 || (count < 5 && job == NULL))
        return USAGE;
    note((history_entry){ .kind = strcmp(words[3], "start") == 0 ? HISTORY_START : HISTORY_FINISH,
                          .id = strtoull(count > 4 ? words[4] : job, NULL, 10) });
    return 0;
}
