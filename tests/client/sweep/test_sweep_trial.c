/* Command lines of trials, and their results from the files in the run folder. */
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/sweep/sweep_repeats.h"
#include "client/sweep/sweep_top.h"
#include "client/sweep/sweep_command.h"
#include "client/sweep/sweep_inbox.h"
#include "client/sweep/trial_pack.h"
#include "client/sweep/trial_result.h"
#include "common/base/system/directory.h"
#include "common/base/system/file.h"
#include "tests/gp_test.h"

static gp_error err;
static char root[40];
static sweep_folder folder;

/* ---- command lines ---- */

static uint32_t repeat; /* of the trial */

/* Check the command of trial 7: the words in `expected`, joined by '|'. F stands for the folder. */
static void check_command(const char *values, uint32_t workers_max, const char *expected,
                          const char *const *words)
{
    static const sweep_folder nowhere = { .path = "F" };
    sweep_command *command;
    sweep_plan plan;
    char joined[1000] = "";

    sweep_plan_init(&plan);
    plan.workers_min = 1;
    plan.workers_max = workers_max;
    for (; *words != NULL; words++)
        REQUIRE_OK(sweep_plan_word(&plan, *words, &err), err);
    REQUIRE_OK(sweep_command_new(&command, &nowhere, &plan, 7, repeat, values, workers_max, &err), err);
    for (const char *const *word = sweep_command_words(command); *word != NULL; word++)
        snprintf(joined + strlen(joined), sizeof(joined) - strlen(joined), "%s%s",
                 joined[0] != '\0' ? "|" : "", *word);
    CHECK_TEXT(expected, joined);
    sweep_command_free(command);
    sweep_plan_deinit(&plan);
}

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

TEST(values_follow_as_options_or_stand_in_their_places)
{
    check_command("{\"lr\": 0.1, \"solver\": \"adam\"}", 1,
                  "train|--network|lenet|--lr|0.1|--solver|adam|--folder|F/trials/0007|--checkpoint-path|"
                  "F/checkpoints/0007|--resume|auto|--workers|1",
                  WORDS("train", "--network", "lenet"));
    check_command("{\"depth\": 3, \"lr\": 0.1}", 4,
                  "train|--network|resnet:depth=3|--lr|0.1|--folder|F/trials/0007|--checkpoint-path|"
                  "F/checkpoints/0007|--resume|auto|--workers|1:4",
                  WORDS("train", "--network", "resnet:depth={depth}"));
    check_command("{\"lr\": 0.1, \"n\": 2, \"b\": true}", 1,
                  "spmd|-n|1|--tag=no|--folder|F/trials/0007|--|./prog|0.1/0.1{x}{|7|--n|2|--b|true",
                  WORDS("./prog", "{lr}/{lr}{x}{", "{trial}"));
}

TEST(a_repeat_has_another_seed)
{
    repeat = 2;
    check_command("{\"lr\": 1}", 1,
                  "train|--network|n|--seed=7|--lr|1|--folder|F/trials/0007|--checkpoint-path|"
                  "F/checkpoints/0007|--resume|auto|--workers|1",
                  WORDS("train", "--seed", "5", "--network", "n"));
    check_command("{}", 1,
                  "train|--seed=10|--folder|F/trials/0007|--checkpoint-path|F/checkpoints/0007|--resume|"
                  "auto|--workers|1",
                  WORDS("train", "--seed=8"));
    check_command("{}", 1, "spmd|-n|1|--tag=no|--folder|F/trials/0007|--|./prog|2",
                  WORDS("./prog", "{seed}"));
    repeat = 0;
    check_command("{\"seed\": 9}", 1, "spmd|-n|1|--tag=no|--folder|F/trials/0007|--|./prog|9",
                  WORDS("./prog", "{seed}"));
}

TEST(a_command_line_for_the_shell_is_quoted)
{
    gp_buffer line;
    sweep_plan plan;

    sweep_plan_init(&plan);
    gp_buffer_init(&line, 1000);
    REQUIRE_OK(sweep_plan_word(&plan, "./it's", &err), err);
    REQUIRE_OK(sweep_plan_word(&plan, "{trial}", &err), err);
    REQUIRE_OK(sweep_command_line(&line, &plan, 3, "{\"name\": \"a b\"}", &err), err);
    CHECK_TEXT("'./it'\\''s' 3 --name 'a b'", gp_buffer_text(&line));
    CHECK(sweep_command_has_place(&plan, "trial") && !sweep_command_has_place(&plan, "name"));
    CHECK(!sweep_command_places_all(&plan, "{\"name\": 1}") && sweep_command_places_all(&plan, "{}"));
    gp_buffer_deinit(&line);
    sweep_plan_deinit(&plan);
}

TEST(malformed_values_are_refused)
{
    static const sweep_folder nowhere = { .path = "F" };
    sweep_command *command;
    sweep_plan plan;

    sweep_plan_init(&plan);
    REQUIRE_OK(sweep_plan_word(&plan, "train", &err), err);
    CHECK_STATUS(GP_EINVAL, sweep_command_new(&command, &nowhere, &plan, 7, 0, "[]", 1, &err));
    CHECK_STATUS(GP_EINVAL, sweep_command_new(&command, &nowhere, &plan, 7, 0, "{", 1, &err));
    for (int i = 0; i < SWEEP_WORDS_MAX; i++)
        REQUIRE_OK(sweep_plan_word(&plan, "x", &err), err);
    CHECK_STATUS(GP_ELIMIT, sweep_command_new(&command, &nowhere, &plan, 7, 0, "{}", 1, &err));
    sweep_plan_deinit(&plan);
}

/* ---- results ---- */

static void write_file(const char *name, const char *text)
{
    char path[SWEEP_PATH_MAX + 200];

    if (folder.path[0] == '\0') {
        strcpy(root, "/tmp/gradpool-trial-XXXXXX");
        if (mkdtemp(root) == NULL)
            abort();
        snprintf(folder.path, sizeof(folder.path), "%s", root);
        snprintf(path, sizeof(path), "%s/trials/0007", root);
        REQUIRE_OK(gp_directory_make(path, 0700, &err), err);
    }
    snprintf(path, sizeof(path), "%s/trials/0007/%s", root, name);
    unlink(path);
    if (text != NULL)
        REQUIRE_OK(gp_file_write(path, text, strlen(text), &err), err);
}

TEARDOWN()
{
    if (folder.path[0] != '\0')
        gp_directory_remove(root);
    folder.path[0] = '\0';
}

/* Read all values and the result of trial 7 with the objective "f1-score".
 *   program  first word of the command
 *   epochs   set to the sum of the epochs with a value */
static sweep_event result_of(const char *program, const char *metrics, const char *end,
                             const gp_job_info *info, uint32_t *epochs)
{
    static char text[SWEEP_TEXT_MAX];
    trial_reader reader = { .lines = NULL };
    sweep_event event = { .trial = 7, .epoch = 5 };
    uint32_t epoch = 0;
    double value;
    sweep_plan plan;

    write_file("metrics.jsonl", metrics);
    write_file("end.json", end);
    sweep_plan_init(&plan);
    strcpy(plan.objective, "f1-score");
    if (sweep_plan_word(&plan, program, &err) != GP_OK)
        abort();
    for (*epochs = 0; trial_reader_next(&reader, &folder, &plan, 7, &epoch, &value);)
        *epochs += epoch;
    if (trial_result_read(&event, text, &reader, &folder, &plan, info, &err) != GP_OK)
        abort();
    trial_reader_deinit(&reader);
    sweep_plan_deinit(&plan);
    return event;
}

static void check_result(const char *program, const char *metrics, const char *end, double value,
                         const char *text)
{
    uint32_t epochs;
    sweep_event event = result_of(program, metrics, end, NULL, &epochs);

    CHECK_INT(SWEEP_OUTCOME_DONE, event.outcome);
    CHECK(isnan(value) ? isnan(event.value) : event.value == value);
    CHECK_TEXT(text, event.text);
}

#define COMPLETED "{\"state\": \"completed\", \"code\": 0"

TEST(the_last_line_of_a_program_with_the_objective_counts)
{
    uint32_t epochs;

    check_result("./prog",
                 "{\"step\": 1, \"f1_score\": 0.5}\n{\"step\": 2, \"f1-score\": 0.75}\n{\"step\": 3}\n",
                 COMPLETED ", \"number\": 9}", 0.75, "");
    check_result("./prog", "{\"f1-score\": 0.5}\n{\"f1-score\": 0.25}", COMPLETED "}", 0.25,
                 ""); /* no newline */
    check_result("./prog", "{\"f1-score\": 0.5}\n{\"f1-score\": 0.2", COMPLETED "}", 0.5, "");
    check_result("./prog", NULL, COMPLETED ", \"number\": 9}", 9, "");
    check_result("./prog", "{\"step\": 1, \"loss\": 0.5, \"f1\": 1}\n", COMPLETED ", \"number\": 9}", NAN,
                 "ended without f1-score; the lines of GRADPOOL_METRICS have: loss, f1");
    check_result("./prog", NULL, COMPLETED "}", NAN,
                 "ended without f1-score: no line in GRADPOOL_METRICS and no number in the output");
    check_result("./prog", NULL, COMPLETED ", \"number\": null}", NAN,
                 "the last number printed is not finite");
    result_of("./prog",
              "{\"epoch\": 1, \"f1-score\": 1}\n{\"epoch\": 2, \"step\": 50, \"f1-score\": 2}\nnoise\n"
              "{\"step\": 4, \"f1-score\": 2}\n{\"f1-score\": 2}\n{\"step\": 5, \"loss\": 2}\n",
              NULL, NULL, &epochs);
    CHECK_INT(1 + 2 + 4, epochs);
}

/* The state machine ignores the values after its decision to stop a trial. A trial may be complete
 * before its job is canceled. */
TEST(the_epoch_of_a_result_is_that_of_its_value)
{
    uint32_t epochs;
    sweep_event event = result_of("./prog", "{\"step\": 1, \"f1-score\": 1}\n{\"step\": 3, \"f1-score\": 2}",
                                  COMPLETED "}", NULL, &epochs);

    CHECK_INT(3, event.epoch);
    CHECK(event.value == 2);
    event = result_of("./prog", NULL, COMPLETED ", \"number\": 9}", NULL, &epochs);
    CHECK_INT(5, event.epoch);
}

TEST(the_result_of_a_training_is_in_end_json)
{
    check_result("train", NULL, COMPLETED ", \"f1_score\": 0.5}", 0.5, "");
    check_result("train", "{\"epoch\": 1, \"f1-score\": 1}\n",
                 COMPLETED ", \"validation_loss\": 0.5, \"step\": 3}", NAN,
                 "ended without f1-score; the result has: validation_loss");
}

#define SHUT_DOWN                                                                                            \
    "{\"state\": \"failed\", \"reason\": \"the pool is shutting down\", \"error\": \"GP_ECANCELED\"}"

TEST(a_job_without_a_result_failed_or_was_lost)
{
    const gp_job_info canceled = { .cancel_asked = true }, forgotten = { .state = GP_JOB_LOST },
                      code2 = { .state = GP_JOB_FAILED, .exit_code = 2, .reason = "usage" },
                      code255 = { .state = GP_JOB_FAILED, .exit_code = 255, .reason = "no pool" };
    gp_job_info code1 = { .id = 4, .state = GP_JOB_FAILED, .exit_code = 1 };
    uint32_t epochs;
    sweep_event event = result_of(
        "./prog", NULL, "{\"state\": \"failed\", \"reason\": \"exit code 3: oops\"}", NULL, &epochs);

    CHECK_INT(SWEEP_OUTCOME_FAILED, event.outcome);
    CHECK_TEXT("exit code 3: oops", event.text);
    CHECK_INT(SWEEP_OUTCOME_CANCELED,
              result_of("./prog", NULL, "{\"state\": \"stopped\"}", &canceled, &epochs).outcome);

    /* the pool was shut down; the controller of an interrupted sweep may have canceled the job */
    CHECK_INT(SWEEP_OUTCOME_LOST, result_of("train", NULL, SHUT_DOWN, NULL, &epochs).outcome);
    CHECK_INT(SWEEP_OUTCOME_CANCELED, result_of("train", NULL, SHUT_DOWN, &canceled, &epochs).outcome);
    CHECK_INT(SWEEP_OUTCOME_LOST, result_of("train", NULL, NULL, &forgotten, &epochs).outcome);
    CHECK_INT(SWEEP_OUTCOME_LOST, result_of("train", NULL, NULL, NULL, &epochs).outcome);
    CHECK_INT(SWEEP_OUTCOME_FAILED, result_of("train", NULL, NULL, &code2, &epochs).outcome);
    event = result_of("train", NULL, NULL, &code1, &epochs);
    CHECK_TEXT("exit code 1; see `gradpool logs 4`", event.text);
    write_file("job.json", "{\"exit\": {\"code\": 1, \"message\": \"no data\"}}");
    snprintf(code1.folder, sizeof(code1.folder), "%s/trials/0007", root);
    CHECK_TEXT("no data", result_of("train", NULL, NULL, &code1, &epochs).text);
    write_file("job.json", "{\"exit\": {\"code\": 2, \"message\": \"\"}}");
    write_file("log",
               "a line: 1\ngradpool train: --momentum has no effect: --solver is adam; did you mean\n  x\n");
    CHECK_TEXT("--momentum has no effect: --solver is adam",
               result_of("train", NULL, NULL, &code1, &epochs).text);
    event = result_of("./prog", NULL, NULL, &code255, &epochs);
    CHECK_INT(SWEEP_OUTCOME_LOST, event.outcome);
    CHECK_TEXT("no pool", event.text);
}

/* ---- packing ---- */

static bool exists(const char *name)
{
    char path[100];

    snprintf(path, sizeof(path), "%s/trials/0007/%s", root, name);
    return access(path, F_OK) == 0;
}

static void write_records(const char *log)
{
    write_file("end.json", COMPLETED ", \"seconds\": 2.5}");
    write_file("job.json", "{\"pid\": 7, \"options\": {\"seed\": 3}}");
    write_file("facts.json", "{\"workers\": 1, \"batch\": 32}");
    write_file("workers.jsonl", "{\"worker\": 1}\n{\"worker\": 2}\n");
    write_file("writer.lock", "");
    write_file("log", log);
}

static void check_packed(void)
{
    static const char *const gone[] = { "job.json", "facts.json", "workers.jsonl", "log", "writer.lock" };
    char path[60];
    gp_train_info info;
    gp_json *json;

    for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
        CHECK(!exists(gone[i]));
    snprintf(path, sizeof(path), "%s/trials/0007", root);
    CHECK_STATUS(GP_OK, run_document_read(&json, path, "job.json", &err));
    CHECK_INT(3, gp_json_integer(gp_json_member(gp_json_member(json, "options"), "seed"), 0));
    gp_json_free(json);
    CHECK(run_info_read(&info, path));
    CHECK_INT(32, info.batch);
    CHECK_STATUS(GP_OK, run_document_read(&json, path, "end.json", &err));
    CHECK_INT(2, gp_json_count(gp_json_member(gp_json_member(json, "records"), "workers.jsonl")));
    CHECK_TEXT("one\ntwo\n", gp_json_text(gp_json_member(gp_json_member(json, "records"), "log"), ""));
    CHECK(gp_json_number(gp_json_member(json, "seconds"), 0) == 2.5);
    gp_json_free(json);
}

TEST(an_unreadable_result_is_an_error)
{
    char path[80], text[SWEEP_TEXT_MAX];
    trial_reader reader = { .lines = NULL };
    sweep_event event = { .trial = 7 };
    sweep_plan plan;

    sweep_plan_init(&plan);
    REQUIRE_OK(sweep_plan_word(&plan, "train", &err), err);
    write_file("end.json", NULL); /* creates the folder */
    CHECK_STATUS(GP_OK, trial_result_read(&event, text, &reader, &folder, &plan, NULL, &err));
    CHECK_INT(SWEEP_OUTCOME_LOST, event.outcome);
    snprintf(path, sizeof(path), "%s/trials/0007/end.json", root);
    REQUIRE(symlink("end.json", path) == 0); /* ELOOP; EMFILE and EIO have the same effect */
    CHECK_STATUS(GP_EIO, trial_result_read(&event, text, &reader, &folder, &plan, NULL, &err));
    CHECK_CONTAINS(err.message, "end.json");
    *strrchr(path, '/') = '\0';
    err.message[0] = '\0';
    CHECK_STATUS(GP_EIO, trial_pack(path, &err));
    CHECK_CONTAINS(err.message, "end.json");
    sweep_plan_deinit(&plan);
}

TEST(the_records_of_an_ended_trial_are_packed_into_end_json)
{
    char path[60];

    write_records("one\ntwo\n");
    snprintf(path, sizeof(path), "%s/trials/0007", root);
    REQUIRE_OK(trial_pack(path, &err), err);
    check_packed();
    write_file("facts.json", "{}"); /* a controller was killed before it removed the file */
    REQUIRE_OK(trial_pack(path, &err), err);
    check_packed();
}

TEST(records_larger_than_a_block_stay_files)
{
    char path[60], log[TRIAL_PACK_BYTES_MAX];

    memset(log, 'x', sizeof(log));
    log[sizeof(log) - 1] = '\0';
    write_records(log);
    snprintf(path, sizeof(path), "%s/trials/0007", root);
    REQUIRE_OK(trial_pack(path, &err), err);
    CHECK(exists("job.json") && exists("facts.json") && exists("workers.jsonl") && exists("log"));
    write_records("");
    write_file("workers.jsonl", "{\"worker\": 1\n"); /* a malformed line would be lost */
    REQUIRE_OK(trial_pack(path, &err), err);
    CHECK(exists("workers.jsonl"));
    write_records("caf\xe9\n"); /* not UTF-8 */
    REQUIRE_OK(trial_pack(path, &err), err);
    CHECK(exists("log"));
}

/* ---- requests ---- */

static uint32_t fed;      /* events of the user */
static bool durable;      /* the journal can be written */
static sweep_event first; /* the first event */

static void ignore(void *context, const sweep_action *action)
{
    (void)context;
    (void)action;
}

static gp_status no_ask(void *context, const char **values, gp_error *error)
{
    (void)context;
    (void)values;
    return gp_fail(error, GP_ENOENT, "no point is left");
}

static gp_status any_add(void *context, const char *values, bool extra, gp_error *error)
{
    (void)context;
    (void)values;
    (void)extra;
    (void)error;
    return GP_OK;
}

static void no_tell(void *context, uint32_t trial, sweep_state state, double value)
{
    (void)context;
    (void)trial;
    (void)state;
    (void)value;
}

/* Create a sweep with trials that ended with these values; NaN: failed. */
static sweep *sweep_with(const double *values, uint32_t count)
{
    const sweep_config config = { .trials_max = 1,
                                  .concurrent_max = 1,
                                  .workers_min = 1,
                                  .workers_max = 1,
                                  .goal = NAN,
                                  .how = "grid",
                                  .search = { NULL, no_ask, any_add, NULL, no_tell } };
    sweep *core;

    if (sweep_new(&core, &config, ignore, NULL, &err) != GP_OK)
        abort();
    for (uint32_t i = 1; i <= count; i++) {
        sweep_line line = { .kind = SWEEP_LINE_ASKED,
                            .trial = i,
                            .how = i == 1 ? "grid" : "confirm",
                            .values = "{}",
                            .of = i == 1 ? 0 : 1,
                            .repeat = i - 1 };

        if (sweep_replay(core, &line, &err) != GP_OK)
            abort();
        line = (sweep_line){ .kind = SWEEP_LINE_END,
                             .trial = i,
                             .state = isnan(values[i - 1]) ? SWEEP_FAILED : SWEEP_DONE,
                             .value = values[i - 1] };
        if (sweep_replay(core, &line, &err) != GP_OK)
            abort();
    }
    return core;
}

static bool feed(void *context, sweep_event event)
{
    if (fed++ == 0)
        first = event;
    sweep_step(context, &event);
    return durable;
}

static bool in_inbox(const char *number, const char *kind)
{
    char path[SWEEP_PATH_MAX + 100];

    sweep_inbox_path(&folder, number, kind, path);
    return access(path, F_OK) == 0;
}

/* A request stays until its line is durable, and a controller that finds it in the journal only
 * removes the file. */
TEST(a_request_is_taken_exactly_once)
{
    char number[SWEEP_REQUEST_BYTES], other[SWEEP_REQUEST_BYTES];
    sweep *core = sweep_with((const double[]){ NAN }, 1);

    write_file("metrics.jsonl", NULL);
    REQUIRE_OK(sweep_inbox_put(&folder, "{\"lr\": 0.5}", 0, number, &err), err);
    fed = 0;
    durable = false;
    sweep_inbox_take(&folder, core, feed, core);
    CHECK_INT(SWEEP_EVENT_ADD, first.kind);
    CHECK_INT(1, fed);
    CHECK_INT(2, sweep_requested(core, number));
    CHECK_TEXT("{\"lr\": 0.5}", sweep_find(core, 2)->values);
    CHECK(in_inbox(number, ".json"));
    durable = true;
    sweep_inbox_take(&folder, core, feed, core); /* the journal has the request */
    CHECK_INT(1, fed);
    CHECK(!in_inbox(number, ".json") && !in_inbox(number, ".refused"));
    REQUIRE_OK(sweep_inbox_put(&folder, NULL, 1, number, &err), err);
    REQUIRE_OK(sweep_inbox_put(&folder, NULL, 2, other, &err), err);
    sweep_inbox_take(&folder, core, feed, core);
    CHECK_INT(3, sweep_requested(core, number));
    CHECK(!in_inbox(number, ".json") && !in_inbox(number, ".refused"));
    CHECK_INT(0, sweep_requested(core, other)); /* trial 2 has not ended */
    CHECK(!in_inbox(other, ".json") && in_inbox(other, ".refused"));
    sweep_free(core);
}

TEST(a_malformed_request_is_refused)
{
    static const char *const bad[] = { "", "{", "[]", "{\"retry\": 0}", "{\"values\": 3}" };
    char path[SWEEP_PATH_MAX + 100];
    sweep *core = sweep_with((const double[]){ NAN }, 1);
    char number[SWEEP_REQUEST_BYTES];

    write_file("metrics.jsonl", NULL);
    fed = 0;
    durable = true;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        REQUIRE_OK(sweep_inbox_put(&folder, NULL, 1, number, &err), err);
        sweep_inbox_path(&folder, number, ".json", path);
        REQUIRE_OK(gp_file_write(path, bad[i], strlen(bad[i]), &err), err);
        sweep_inbox_take(&folder, core, feed, core);
        CHECK(!in_inbox(number, ".json") && in_inbox(number, ".refused"));
    }
    CHECK_INT(0, fed);
    CHECK_INT(1, sweep_count(core));
    sweep_free(core);
}

/* ---- repeats ---- */

TEST(the_mean_and_spread_of_repeats_exclude_the_best_trial)
{
    sweep *core = sweep_with((const double[]){ 0.9, 0.5, NAN, 0.7 }, 4);
    sweep_repeats repeats = sweep_repeats_of(core);

    CHECK_INT(2, repeats.count);
    CHECK(fabs(repeats.mean - 0.6) < 1e-12);
    CHECK(fabs(repeats.std - sqrt(0.02)) < 1e-12);
    sweep_free(core);
    core = sweep_with((const double[]){ 0.9, 0.5 }, 2);
    repeats = sweep_repeats_of(core);
    CHECK(repeats.mean == 0.5 && isnan(repeats.std));
    sweep_free(core);
    core = sweep_with((const double[]){ 0.9 }, 1);
    CHECK_INT(0, sweep_repeats_of(core).count);
    sweep_free(core);
}

/* ---- best trials ---- */

TEST(each_new_trial_displaces_at_most_one_of_the_best)
{
    enum { TRIALS = 2000, MODELS = 700 };
    static double values[TRIALS + 1];
    static bool kept[TRIALS + 1];
    sweep_top top;
    int count = 0;

    for (int minimize = 0; minimize < 2; minimize++) {
        uint32_t random = 1;

        memset(kept, 0, sizeof(kept));
        count = 0;
        REQUIRE_OK(sweep_top_init(&top, MODELS, minimize != 0, &err), err);
        for (uint32_t trial = 1; trial <= TRIALS; trial++) {
            random = random * 1664525 + 1013904223;
            values[trial] = (double)(random >> 22); /* some values are equal */
            kept[trial] = true;
            kept[sweep_top_add(&top, trial, values[trial])] = false;
        }
        kept[0] = false;
        for (uint32_t trial = 1; trial <= TRIALS; trial++) {
            int better = 0;

            for (uint32_t other = 1; other <= TRIALS; other++)
                better += values[other] == values[trial] ? other < trial
                                                         : (values[other] < values[trial]) == (minimize != 0);
            CHECK(kept[trial] == (better < MODELS));
            count += kept[trial];
        }
        CHECK_INT(MODELS, count);
        sweep_top_deinit(&top);
    }
}
