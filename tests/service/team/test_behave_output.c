/* test_behave_output.c: what tasks print reaches the client as lines. */
#include "proto/local/paths.h"
#include "tests/service/team/behave.h"

enum { LINES_MAX = 4096 };

/* Received lines. The callback runs with the team locked, and the tests read them after a wait. */
static struct {
    gp_output_line line;
    char text[64];
} received[LINES_MAX];
static int received_count;

static void take_output(void *context, const gp_output_line *line)
{
    CHECK(context == received);
    CHECK(line->text[line->bytes] == '\0');
    if (received_count == LINES_MAX)
        return;
    received[received_count].line = *line;
    snprintf(received[received_count].text, sizeof(received[0].text), "%s", line->text);
    received_count++;
    if (strcmp(line->text, "start 2") == 0)
        let_go();
}

static const gp_team_options with_output = { .output = take_output, .context = received };

#define BEGIN_WITH_OUTPUT(workers)                                                                           \
    team_prepare();                                                                                          \
    received_count = 0;                                                                                      \
    REQUIRE(team_begin(workers, &with_output))

/* Return how many lines of that text were received, and the index of the last one. */
static int count_lines(const char *text, int *at)
{
    int count = 0;

    for (int i = 0; i < received_count; i++)
        if (strcmp(received[i].text, text) == 0) {
            count++;
            if (at != NULL)
                *at = i;
        }
    return count;
}

/* Return the log of worker 1. */
static const char *worker_log(void)
{
    static char text[1 << 18];

    char path[GP_TEXT_PATH];
    gp_paths paths;

    text[0] = '\0';
    if (gp_paths_find(&paths, gp_pool_name(pool), &err) != GP_OK)
        return text;
    gp_paths_worker_log(&paths, 1, path);
    slurp(path, text, sizeof(text));
    return text;
}

TEST(lines_of_a_call_arrive_in_order_before_its_result)
{
    enum { CALLS = 60 };
    static const char *const words[] = { "out", "err", "end" };
    gp_future *futures[CALLS];

    BEGIN_WITH_OUTPUT(2);
    for (int i = 0; i < CALLS; i++)
        futures[i] = call("print_number", i);
    for (int i = 0; i < CALLS; i++) {
        int before = -1, at = -1;

        CHECK_INT(i, number_of(futures[i]));
        for (int word = 0; word < 3; word++) {
            char text[32];

            snprintf(text, sizeof(text), "%s %d", words[word], i);
            REQUIRE(count_lines(text, &at) == 1);
            CHECK(at > before);
            CHECK_INT(info_of(futures[i]).id, received[at].line.call);
            CHECK_INT(info_of(futures[i]).worker, received[at].line.worker);
            CHECK(!received[at].line.in_loop && received[at].line.bytes == strlen(text));
            before = at;
        }
        gp_future_free(futures[i]);
    }
    CHECK_INT(3 * CALLS, received_count);
    CHECK_INT(0, team_info().output_dropped);
    CHECK_CONTAINS(worker_log(), "\nerr ");
}

TEST(each_iteration_has_its_lines_also_if_it_fails)
{
    enum { LAST = 200 };
    gp_error errors[LAST];

    BEGIN_WITH_OUTPUT(2);
    REQUIRE_OK(
        gp_parfor(team,
                  &(gp_parfor_request){
                      .function = find("print_iteration"), .first = 1, .last = LAST, .errors = errors },
                  &err),
        err);
    CHECK_INT(LAST, received_count);
    for (int i = 1; i <= LAST; i++) {
        char text[64];
        int at = -1, count = 0;

        CHECK_STATUS(i % 3 == 0 ? GP_EINVAL : GP_OK, errors[i - 1].code);
        for (uint32_t worker = 1; worker <= 2; worker++) {
            snprintf(text, sizeof(text), "%d on worker %u", i, worker);
            if (count_lines(text, &at) == 0)
                continue;
            CHECK(received[at].line.in_loop);
            CHECK_INT(i, received[at].line.iteration);
            CHECK_INT(worker, received[at].line.worker);
            count++;
        }
        CHECK_INT(1, count);
    }
}

TEST(line_printed_between_calls_belongs_to_none)
{
    void *data;
    size_t bytes;

    BEGIN_WITH_OUTPUT(1);
    CHECK_STATUS(GP_OK, end_of(call("print_later", 0)));
    AWAIT(gp_team_get(team, 1, "none", &data, &bytes, &err) == GP_ENOENT && received_count > 0, 20);
    REQUIRE(received_count == 1);
    CHECK_TEXT("later", received[0].text);
    CHECK_INT(0, received[0].line.call);
    CHECK(!received[0].line.in_loop);
}

TEST(ranks_of_a_block_print_under_one_call)
{
    gp_spmd_result *block = NULL;
    int at[6];

    BEGIN_WITH_OUTPUT(3);
    REQUIRE_OK(gp_spmd(&block, team, &(gp_spmd_request){ .function = find("print_rank") }, &err), err);
    CHECK_INT(6, received_count);
    for (uint32_t rank = 1; rank <= 3; rank++) {
        char text[32];

        snprintf(text, sizeof(text), "rank %u begins", rank);
        REQUIRE(count_lines(text, &at[rank - 1]) == 1);
        snprintf(text, sizeof(text), "rank %u ends", rank);
        REQUIRE(count_lines(text, &at[rank + 2]) == 1);
        CHECK(at[rank - 1] < at[rank + 2]);
        CHECK_INT(rank, received[at[rank - 1]].line.worker);
        CHECK_INT(received[0].line.call, received[at[rank + 2]].line.call);
    }
    gp_spmd_result_free(block);
}

TEST(output_of_a_failed_worker_arrives_and_its_replacement_prints_too)
{
    uint32_t attempt = 0;
    const void *data;
    size_t bytes;

    BEGIN_WITH_OUTPUT(1);
    gp_future *future = call_text("print_and_die", in_root("go"));

    REQUIRE_OK(gp_future_result(future, &data, &bytes, &err), err);
    memcpy(&attempt, data, sizeof(attempt));
    CHECK_INT(3, attempt);
    CHECK_INT(1, count_lines("start 1", NULL));
    CHECK_INT(1, count_lines("torn 1", NULL)); /* abort() */
    CHECK_INT(1, count_lines("start 2", NULL));
    CHECK_INT(0, count_lines("torn 2", NULL)); /* SIGKILL in the middle of the line */
    CHECK_INT(1, count_lines("start 3", NULL));
    CHECK_INT(1, count_lines("torn 3", NULL));
    CHECK_INT(5, received_count);
    CHECK_CONTAINS(worker_log(), "torn 1");
    for (int i = 0; i < received_count; i++)
        CHECK_INT(info_of(future).id, received[i].line.call);
}

TEST(without_a_callback_the_log_has_the_lines)
{
    BEGIN(1);
    CHECK_INT(5, number_of(call("print_number", 5)));
    CHECK_CONTAINS(worker_log(), "out 5\nerr 5\n");
}

/* ---- random kills ---- */

enum { PLACES_MAX = 20000, STARTS_MAX = 8 };

/* Processes that printed the line of an iteration, and the one that returned its result. */
typedef struct printed {
    int64_t pids[STARTS_MAX], result_pid;
    int count;
} printed;

static printed places[PLACES_MAX + 1];
static int kills_left, results_left;

static void take_place(void *context, const gp_output_line *line)
{
    long long iteration = 0, pid = 0;
    int end = 0;

    (void)context;
    if (sscanf(line->text, "iteration %lld in process %lld%n", &iteration, &pid, &end) != 2 ||
        (size_t)end != line->bytes || iteration < 1 || iteration > PLACES_MAX) {
        GP_TEST_FAIL("not a whole line: %s", line->text);
        return;
    }
    CHECK_INT(iteration, line->iteration);
    printed *place = &places[iteration];

    for (int i = 0; i < place->count; i++)
        CHECK(place->pids[i] != pid); /* no line arrives twice */
    if (place->count < STARTS_MAX)
        place->pids[place->count++] = pid;
}

static bool kill_after_result(void *context, int64_t iteration, const void *data, size_t bytes)
{
    int64_t place[2] = { 0 };

    (void)context;
    if (bytes == sizeof(place))
        memcpy(place, data, sizeof(place));
    CHECK_INT(iteration, place[0]);
    CHECK_INT(0, places[iteration].result_pid);
    places[iteration].result_pid = place[1];
    if (kills_left > 0 && --results_left <= 0) {
        kills_left -= kill((pid_t)place[1], SIGKILL) == 0;
        results_left = 10 + rand() % 20;
    }
    return true;
}

/* GRADPOOL_TEST_KILLS, GRADPOOL_TEST_SEED: for longer runs by hand. */
TEST(each_result_has_its_line_once_despite_random_kills)
{
    const char *kills = getenv("GRADPOOL_TEST_KILLS"), *given = getenv("GRADPOOL_TEST_SEED");
    const unsigned seed = given != NULL ? (unsigned)atoi(given) : (unsigned)getpid();
    int64_t last;

    team_prepare();
    memset(places, 0, sizeof(places));
    kills_left = kills != NULL ? atoi(kills) : 6;
    results_left = 10;
    srand(seed);
    printf("     seed %u, %d kills\n", seed, kills_left);
    last = 60 * ((int64_t)kills_left + 2) < PLACES_MAX ? 60 * ((int64_t)kills_left + 2) : PLACES_MAX;
    REQUIRE(team_begin(3, &(gp_team_options){ .output = take_place }));
    REQUIRE_OK(gp_parfor(team,
                         &(gp_parfor_request){ .function = find("print_place"),
                                               .first = 1,
                                               .last = last,
                                               .chunk = 3,
                                               .unordered = true,
                                               .attempts = 1000,
                                               .on_result = kill_after_result },
                         &err),
               err);
    CHECK_INT(0, kills_left);
    CHECK_INT(0, team_info().output_dropped);
    for (int64_t i = 1; i <= last; i++) {
        bool found_line = false;

        for (int k = 0; k < places[i].count; k++)
            found_line = found_line || places[i].pids[k] == places[i].result_pid;
        if (!found_line)
            GP_TEST_FAIL("iteration %d returned from process %d and has no line of it", (int)i,
                         (int)places[i].result_pid);
    }
}
