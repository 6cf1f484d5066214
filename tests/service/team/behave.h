/* behave.h: a pool, a team on all workers, and the functions in behave_tasks.so. */
#ifndef GP_TEST_BEHAVE_H
#define GP_TEST_BEHAVE_H

#include <fcntl.h>

#include "client/team/dispatch.h"
#include "tests/descriptors.h"
#include "tests/service/teams.h"
#include "tests/service/team/tasks/behave_tasks.h"

static char object_path[600];

/* Functions already looked up by this team. */
enum { FOUND_MAX = 64 };

typedef struct found_function {
    const char *name;
    const gp_function *function;
} found_function;

static found_function found[FOUND_MAX];
static int found_count;
static char said[4096]; /* lines from the team's log callback, with worker numbers */

static inline void take_line(void *context, uint32_t worker, const char *line)
{
    size_t length = strlen(said);

    (void)context;
    snprintf(said + length, sizeof(said) - length, "%u: %s\n", worker, line);
}

/* Create fresh directories without a pool. */
static inline void team_prepare(void)
{
    pools_begin(NULL);
    snprintf(object_path, sizeof(object_path), "%s", in_build("lib/behave_tasks.so"));
    said[0] = '\0';
    found_count = 0;
}

/* Look up a function of the object. NULL, which calls refuse: not found. */
static inline const gp_function *find(const char *name)
{
    for (int i = 0; i < found_count; i++)
        if (strcmp(found[i].name, name) == 0)
            return found[i].function;
    const gp_function *function = team_function(object_path, name);

    if (function != NULL && found_count < FOUND_MAX)
        found[found_count++] = (found_function){ name, function };
    return function;
}

/* Look up common functions while the workers are idle. */
static inline void find_usual(void)
{
    static const char *const usual[] = { "nothing",  "square", "where", "nap",  "hold",
                                         "stubborn", "fail",   "die",   "tally" };

    found_count = 0;
    for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
        find(usual[i]);
}

/* Close the team and open another on the same pool. */
static inline gp_status team_again(const gp_team_options *options)
{
    gp_status status;

    gp_team_close(team);
    team = NULL;
    found_count = 0;
    status = gp_team_open(&team, pool, options, &err);
    if (status == GP_OK)
        find_usual();
    return status;
}

/* Start a pool with `workers` CPU workers and open a team on all of them. */
static inline bool behave_begin(uint32_t workers)
{
    team_prepare();
    if (!team_begin(workers, &(gp_team_options){ .purpose = "behave", .log = take_line }))
        return false;
    find_usual();
    return true;
}

#define BEGIN(workers) REQUIRE(behave_begin(workers))

static inline gp_future *call_with(gp_parfeval_request request, const char *name, const void *argument,
                                   size_t bytes)
{
    gp_future *future = NULL;

    request.function = find(name);
    request.argument = argument;
    request.bytes = bytes;
    if (gp_parfeval(&future, team, &request, &err) != GP_OK)
        GP_TEST_FAIL("cannot call %s: %s", name, err.message);
    return future;
}

static inline gp_future *call(const char *name, int64_t argument)
{
    return call_with((gp_parfeval_request){ 0 }, name, &argument, sizeof(argument));
}

static inline gp_future *call_text(const char *name, const char *text)
{
    return call_with((gp_parfeval_request){ 0 }, name, text, strlen(text));
}

/* Submit a call that runs until let_go(). */
static inline gp_future *call_held(void)
{
    return call_text("hold", in_root("go"));
}

static inline void let_go(void)
{
    write_file("go", "");
}

/* Return the result as a number; -1 and a failed check without one. */
static inline int64_t number_of(gp_future *future)
{
    const void *data = NULL;
    size_t bytes = 0;
    int64_t number = -1;

    if (future == NULL) /* already reported */
        return number;
    if (gp_future_result(future, &data, &bytes, &err) != GP_OK)
        GP_TEST_FAIL("call without a result: %s: %s", gp_status_name(err.code), err.message);
    else if (bytes != sizeof(number))
        GP_TEST_FAIL("the result has %zu bytes, expected one number", bytes);
    else
        memcpy(&number, data, sizeof(number));
    return number;
}

static inline behave_place place_of(gp_future *future)
{
    behave_place place = { 0 };
    const void *data = NULL;
    size_t bytes = 0;

    if (future == NULL)
        return place;
    if (gp_future_result(future, &data, &bytes, &err) != GP_OK)
        GP_TEST_FAIL("call without a result: %s: %s", gp_status_name(err.code), err.message);
    else if (bytes == sizeof(place))
        memcpy(&place, data, bytes);
    return place;
}

/* Return the final status of a call and store the error message in err. */
static inline gp_status end_of(gp_future *future)
{
    const void *data;
    size_t bytes;

    if (future == NULL)
        return err.code; /* there is no call */
    err.message[0] = '\0';
    return gp_future_result(future, &data, &bytes, &err);
}

/* Return whether no worker was lost since that time to a canceled call or block that did not end. A
 * loss is accepted if the time exceeded the grace period, as for a suspended worker. */
static inline bool workers_kept(int64_t since_ms)
{
    gp_team_info info;

    gp_team_get_info(team, &info);
    return info.worker_deaths == 0 || gp_now_ms() - since_ms >= DISPATCH_GRACE_MS;
}

static inline gp_future_info info_of(const gp_future *future)
{
    gp_future_info info;

    gp_future_get_info(future, &info);
    return info;
}

static inline gp_team_info team_info(void)
{
    gp_team_info info;

    gp_team_get_info(team, &info);
    return info;
}

/* Wait until `count` naps, held and stubborn tasks have started. */
static inline bool wait_begun(int count)
{
    AWAIT(count_in(said, "begun") >= count, 1);
    return count_in(said, "begun") >= count;
}

/* Wait until this call runs and some task, possibly on another worker, has logged a start. */
static inline bool wait_running(const gp_future *future)
{
    AWAIT(info_of(future).state != GP_FUTURE_WAITING, 1);
    return wait_begun(1) && info_of(future).state == GP_FUTURE_RUNNING;
}

/* Count the idle and busy workers. */
static inline uint32_t workers_alive(void)
{
    gp_status_reply *reply = pools_settled(pool);
    uint32_t count = 0;

    for (uint32_t i = 0; reply != NULL && i < reply->workers_count; i++)
        count += reply->workers[i].state == GP_WORKER_IDLE || reply->workers[i].state == GP_WORKER_BUSY;
    gp_free(reply);
    return count;
}

#endif
