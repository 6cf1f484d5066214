/* Test the table, the live table, the exports and the picture of a sweep. */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/sweep/sweep_export.h"
#include "client/cli/sweep/sweep_live.h"
#include "client/cli/sweep/sweep_picture.h"
#include "client/cli/sweep/sweep_table.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/directory.h"
#include "common/base/system/file.h"
#include "common/search/search_state.h"
#include "tests/gp_test.h"

/* Trial 1 is the best one, trial 2 has another solver, trial 3 was stopped, trial 4 failed, trial 5
 * waits. */
static const char journal[] =
    "{\"event\": \"asked\", \"trial\": 1, \"how\": \"bayes\", \"values\": {\"solver\": \"sgdm\", \"lr\": "
    "0.1, \"momentum\": 0.9}}\n"
    "{\"event\": \"asked\", \"trial\": 2, \"how\": \"bayes\", \"values\": {\"solver\": \"adam\", \"lr\": "
    "0.01}}\n"
    "{\"event\": \"asked\", \"trial\": 3, \"how\": \"added\", \"values\": {\"solver\": \"adam\", \"lr\": "
    "0.2}}\n"
    "{\"event\": \"asked\", \"trial\": 4, \"how\": \"bayes\", \"values\": {\"solver\": \"adam\", \"lr\": "
    "0.3}}\n"
    "{\"event\": \"asked\", \"trial\": 5, \"how\": \"bayes\", \"values\": {\"solver\": \"adam\", \"lr\": "
    "0.001}}\n"
    "{\"event\": \"end\", \"trial\": 2, \"state\": \"done\", \"epochs\": 9, \"value\": 0.5, \"text\": \"\"}\n"
    "{\"event\": \"end\", \"trial\": 1, \"state\": \"done\", \"epochs\": 9, \"value\": 0.9, \"text\": \"\"}\n"
    "{\"event\": \"end\", \"trial\": 3, \"state\": \"stopped\", \"epochs\": 3, \"value\": 0.25, \"text\": "
    "\"\"}\n"
    "{\"event\": \"end\", \"trial\": 4, \"state\": \"failed\", \"epochs\": 1, \"value\": null, \"text\": "
    "\"the loss, it seems, is not finite\"}\n";

static const char space_text[] =
    "{\"solver\": [\"sgdm\", \"adam\"], \"lr\": \"log:1e-4:1.0\","
    " \"momentum\": {\"values\": \"0.5:0.99\", \"when\": {\"solver\": [\"sgdm\"]}}}";

static sweep_plan plan;
static sweep_points *points;
static sweep *core;
static gp_space *space;
static sweep_folder folder;
static gp_error err;

static void ignore(void *context, const sweep_action *action)
{
    (void)context;
    (void)action;
}

static gp_status replay(void *context, const sweep_line *line, gp_error *error)
{
    (void)context;
    return sweep_replay(core, line, error);
}

/* Write a file of trial 1. */
static void write_trial(const char *name, const char *text)
{
    char path[SWEEP_PATH_MAX + 100];

    sweep_folder_trial(&folder, 1, name, path);
    REQUIRE_OK(gp_file_write(path, text, strlen(text), &err), err);
}

static void stage(void)
{
    char path[SWEEP_PATH_MAX + 40];
    size_t kept;

    sweep_plan_init(&plan);
    snprintf(plan.objective, sizeof(plan.objective), "validation-accuracy");
    plan.trials = 8;
    plan.workers_min = plan.workers_max = 1;
    plan.epochs_max = 9;
    REQUIRE_OK(gp_buffer_append(&plan.space, space_text, sizeof(space_text), &err), err);
    REQUIRE_OK(sweep_points_new(&points, &plan, &err), err);
    REQUIRE_OK(sweep_points_space(&space, &plan, &err), err);
    const sweep_config config = { .trials_max = 8,
                                  .concurrent_max = 1,
                                  .workers_min = 1,
                                  .workers_max = 1,
                                  .goal = NAN,
                                  .how = "bayes",
                                  .search = sweep_points_search(points) };

    REQUIRE_OK(sweep_new(&core, &config, ignore, NULL, &err), err);
    REQUIRE_OK(sweep_lines_decode(journal, sizeof(journal) - 1, &kept, replay, NULL, &err), err);

    snprintf(folder.path, sizeof(folder.path), "/tmp/gradpool-sweep-XXXXXX");
    REQUIRE(mkdtemp(folder.path) != NULL);
    snprintf(path, sizeof(path), "%s/trials", folder.path);
    REQUIRE(mkdir(path, 0700) == 0);
    snprintf(path, sizeof(path), "%s/trials/0001", folder.path);
    REQUIRE(mkdir(path, 0700) == 0);
    write_trial("/facts.json", "{\"began\": \"2026-11-24T00:17:46.970Z\"}");
    write_trial("/end.json", "{\"seconds\": 61.5, \"ended\": \"2026-11-24T00:18:48.500Z\"}");
}

static void strike(void)
{
    gp_directory_remove(folder.path);
    sweep_free(core);
    sweep_points_free(points);
    gp_space_free(space);
    sweep_plan_deinit(&plan);
}

/* Read a file that a function under test has written into the folder. */
static char *written(const char *name)
{
    char path[SWEEP_PATH_MAX + 40];
    uint8_t *text = NULL;
    size_t bytes;

    snprintf(path, sizeof(path), "%s/%s", folder.path, name);
    if (gp_file_read(&text, &bytes, path, 1 << 20, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    return (char *)text;
}

static const char *in_folder(const char *name)
{
    static char path[SWEEP_PATH_MAX + 40];

    snprintf(path, sizeof(path), "%s/%s", folder.path, name);
    return path;
}

/* Check that a line of the text begins with `start`, and return it. */
static const char *line_of(const char *text, int number, const char *start)
{
    for (int i = 1; i < number && text != NULL; i++) {
        text = strchr(text, '\n');
        text = text == NULL ? NULL : text + 1;
    }
    CHECK(text != NULL && strncmp(text, start, strlen(start)) == 0);
    return text == NULL ? "" : text;
}

TEST(the_best_trial_is_the_first_row)
{
    stage();
    sweep_table shown = { .core = core, .plan = &plan, .space = space, .folder = &folder };
    char *text = NULL;
    size_t bytes;
    FILE *memory = open_memstream(&text, &bytes);
    show_table *table = sweep_table_new(&shown);

    show_table_write(table, memory);
    show_table_free(table);
    fclose(memory);
    line_of(text, 1, "trial  validation-accuracy  epochs  time      state       solver  lr     momentum");
    line_of(text, 2, "1      90.00 %              9       1 m 01 s  done, best  sgdm    0.1    0.9");
    line_of(text, 3, "2      50.00 %              9                 done        adam    0.01\n");
    line_of(text, 4, "3      25.00 %              3                 stopped     adam    0.2\n");
    CHECK_CONTAINS(line_of(text, 5, "4      -  "), "the loss, it seems, is not finite");
    line_of(text, 6, "5      -  ");
    free(text);

    /* a limit of the rows, and the lowest value as the best */
    shown.rows = 2;
    plan.minimize = true;
    memory = open_memstream(&text, &bytes);
    table = sweep_table_new(&shown);
    show_table_write(table, memory);
    show_table_free(table);
    fclose(memory);
    line_of(text, 2, "2  ");
    line_of(text, 3, "1  ");
    CHECK_TEXT("", line_of(text, 4, ""));
    free(text);
    strike();
}

/* Add the next trial, and report its value at an epoch that is a rung. */
static sweep_verdict verdict_at(sweep_points *search, const char *values, uint32_t epoch, double value)
{
    static uint32_t trial;
    const sweep_search interface = sweep_points_search(search);

    if (interface.add(search, values, false, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    return interface.report(search, ++trial, epoch, value);
}

TEST(a_training_whose_last_epoch_is_a_rung_is_not_stopped)
{
    static const char text[] = "{\"solver\": [\"sgdm\", \"adam\"],"
                               " \"epochs\": {\"values\": [3, 9, 27], \"when\": {\"solver\": [\"adam\"]}}}";
    static const char *const words[] = { "train", "--max_epochs=9" };
    sweep_points *search = NULL;
    sweep_plan short_plan;

    sweep_plan_init(&short_plan);
    short_plan.trials = 8;
    short_plan.asha_eta = 3;
    short_plan.epochs_min = 1;
    short_plan.epochs_max = 27;
    for (size_t i = 0; i < 2; i++)
        REQUIRE_OK(sweep_plan_word(&short_plan, words[i], &err), err);
    REQUIRE_OK(gp_buffer_append(&short_plan.space, text, sizeof(text), &err), err);
    REQUIRE_OK(sweep_points_new(&search, &short_plan, &err), err);
    CHECK_INT(SWEEP_CONTINUE, verdict_at(search, "{\"solver\": \"adam\", \"epochs\": 27}", 3, 0.9));
    CHECK_INT(SWEEP_CONTINUE, verdict_at(search, "{\"solver\": \"adam\", \"epochs\": 3}", 3, 0.1));
    CHECK_INT(SWEEP_STOP, verdict_at(search, "{\"solver\": \"adam\", \"epochs\": 9}", 3, 0.05));

    /* without the parameter, as many epochs as in the command */
    CHECK_INT(SWEEP_STOP, verdict_at(search, "{\"solver\": \"sgdm\"}", 3, 0.04));
    CHECK_INT(SWEEP_CONTINUE, verdict_at(search, "{\"solver\": \"adam\", \"epochs\": 27}", 9, 0.9));
    CHECK_INT(SWEEP_CONTINUE, verdict_at(search, "{\"solver\": \"sgdm\"}", 9, 0.1));
    CHECK_INT(SWEEP_STOP, verdict_at(search, "{\"solver\": \"adam\", \"epochs\": 27}", 9, 0.05));
    sweep_points_free(search);
    sweep_plan_deinit(&short_plan);
}

/* Set `last` to the values of trial 12 in a sweep of `trials` trials. */
static void search_with(uint32_t trials, char *last, size_t bytes)
{
    static const char text[] = "{\"x\": \"real:0:1\", \"y\": \"real:0:1\"}";
    sweep_points *found = NULL;
    sweep_plan tiny;

    sweep_plan_init(&tiny);
    tiny.trials = trials;
    tiny.minimize = true;
    tiny.seed = 1;
    REQUIRE_OK(gp_buffer_append(&tiny.space, text, sizeof(text), &err), err);
    REQUIRE_OK(sweep_points_new(&found, &tiny, &err), err);
    const sweep_search search = sweep_points_search(found);

    for (uint32_t trial = 1; trial <= 12; trial++) {
        const char *values;
        gp_json *json = NULL;

        REQUIRE_OK(search.ask(found, &values, &err), err);
        snprintf(last, bytes, "%s", values);
        REQUIRE_OK(gp_json_parse(&json, values, strlen(values), &err), err);
        const double x = gp_json_number(gp_json_member(json, "x"), NAN);
        const double y = gp_json_number(gp_json_member(json, "y"), NAN);

        gp_json_free(json);
        search.tell(found, trial, SWEEP_DONE, (x - 0.3) * (x - 0.3) + (y - 0.6) * (y - 0.6));
    }
    sweep_points_free(found);
    sweep_plan_deinit(&tiny);
}

TEST(the_last_trials_of_a_short_sweep_do_not_explore)
{
    char twelve[100] = "", again[100] = "", many[100] = "";

    search_with(12, twelve, sizeof(twelve));
    search_with(12, again, sizeof(again));
    search_with(SWEEP_TRIALS_MAX, many, sizeof(many));
    CHECK_TEXT(twelve, again);
    CHECK(strcmp(twelve, many) != 0); /* every fourth of many trials explores */
}

TEST(added_points_are_no_part_of_the_planned_trials)
{
    static const char text[] = "{\"x\": \"real:0:1\"}";
    sweep_points *found = NULL;
    sweep_plan tiny;

    sweep_plan_init(&tiny);
    tiny.trials = 12;
    REQUIRE_OK(gp_buffer_append(&tiny.space, text, sizeof(text), &err), err);
    REQUIRE_OK(sweep_points_new(&found, &tiny, &err), err);
    const sweep_search search = sweep_points_search(found);

    REQUIRE_OK(search.add(found, "{\"x\": 0.5}", false, &err), err); /* replayed */
    CHECK_INT(12, found->search->planned);
    REQUIRE_OK(search.add(found, "{\"x\": 0.5}", true, &err), err);
    CHECK_INT(13, found->search->planned);
    sweep_points_free(found);
    sweep_plan_deinit(&tiny);
}

TEST(a_sweep_has_at_most_ten_thousand_trials)
{
    static const char text[] = "{\"x\": \"real:0:1\"}";
    sweep_points *found = NULL;
    const char *values;
    sweep_plan largest;

    sweep_plan_init(&largest);
    largest.method = GP_SEARCH_RANDOM;
    largest.trials = SWEEP_TRIALS_MAX;
    REQUIRE_OK(gp_buffer_append(&largest.space, text, sizeof(text), &err), err);
    REQUIRE_OK(sweep_points_new(&found, &largest, &err), err);
    const sweep_search search = sweep_points_search(found);

    for (uint32_t trial = 1; trial <= SWEEP_TRIALS_MAX; trial++)
        REQUIRE_OK(search.add(found, "{\"x\": 0.5}", false, &err), err);
    CHECK_STATUS(GP_ELIMIT, search.add(found, "{\"x\": 0.5}", false, &err));
    CHECK_STATUS(GP_ENOENT, search.ask(found, &values, &err));
    sweep_points_free(found);
    sweep_plan_deinit(&largest);
}

TEST(cells_are_padded_and_cut_by_characters)
{
    char long_name[200], expected[200], *text = NULL;
    size_t bytes;
    FILE *memory = open_memstream(&text, &bytes);
    show_table *table = show_table_new(2, "größe\tb");

    /* 60 characters of 2 bytes: 59 of them fit into the 119 bytes of a cell */
    for (size_t i = 0; i < 60; i++)
        memcpy(long_name + 2 * i, "é", 3);
    snprintf(expected, sizeof(expected), "x      %.118s\n", long_name);
    show_cells(table, "%s\t%s", "äöü", "1");
    show_cells(table, "%s\t%s", "x", long_name);
    show_table_write(table, memory);
    show_table_free(table);
    fclose(memory);
    line_of(text, 1, "größe  b\n");
    line_of(text, 2, "äöü    1\n");
    line_of(text, 3, expected);
    free(text);
    CHECK_TEXT("é", show_clean(expected, 4, "éé"));
    CHECK_TEXT("a?", show_clean(expected, 4, "a\xc3")); /* not cut, but invalid */
}

/* The terminal of a stream in memory has 80 columns and 24 lines. */
TEST(the_live_table_is_redrawn_in_place_and_erased)
{
    stage();
    sweep_live *live = NULL;
    char *text = NULL;
    size_t bytes;
    FILE *memory = open_memstream(&text, &bytes);

    REQUIRE_OK(sweep_live_new(&live, memory, &plan, &err), err);
    sweep_live_draw(live, core, 1000);
    CHECK(strstr(text, "\033[7A") == NULL);
    CHECK_CONTAINS(text, "4 of 8 trials; best 90.00 %; 0 running, 2 done, 1 stopped, 1 failed");
    CHECK(strstr(text, "left") == NULL);
    for (const char *line = text; *line != '\0'; line += line[strcspn(line, "\n")] == '\n') {
        CHECK(strcspn(line, "\n") <= 80 + strlen("\033[K"));
        line += strcspn(line, "\n");
    }
    sweep_live_draw(live, core, 1100); /* less than 200 ms later: nothing is drawn */
    CHECK(strstr(text, "\033[7A") == NULL);

    /* Trial 5 runs: it is the first row, with its time. */
    const sweep_event events[] = {
        { .kind = SWEEP_EVENT_SUBMITTED, .trial = 5, .attempt = 1 },
        { .kind = SWEEP_EVENT_RUNNING, .trial = 5, .attempt = 1 },
        { .kind = SWEEP_EVENT_VALUE, .trial = 5, .attempt = 1, .epoch = 3, .value = 0.1 },
    };

    sweep_step(core, &(const sweep_event){ .kind = SWEEP_EVENT_BEGIN });
    for (size_t i = 0; i < 2; i++)
        sweep_step(core, &events[i]);
    sweep_live_draw(live, core, 2000);
    sweep_step(core, &events[2]);
    sweep_live_note(live, "the scheduler \033[2J failed", 2000);
    size_t before = bytes;

    sweep_live_draw(live, core, 5000);
    CHECK_CONTAINS(text + before, "\r\033[7A");
    CHECK_CONTAINS(text + before, "5      10.00 %              3       3.0 s  running     adam    0.001");
    CHECK(strstr(text + before, "\n5  ") < strstr(text + before, "\n1  "));
    CHECK_CONTAINS(text + before, "the scheduler ?[2J failed");
    CHECK(isnan(sweep_live_seconds_left(live, core, 5000))); /* a third of a trial is no basis */

    /* One trial in 9 s: the three that are left take 27 s. */
    sweep_step(core, &(const sweep_event){ .kind = SWEEP_EVENT_ENDED,
                                           .trial = 5,
                                           .attempt = 1,
                                           .outcome = SWEEP_OUTCOME_DONE,
                                           .epoch = 9,
                                           .value = 0.2 });
    sweep_step(core, &(const sweep_event){ .kind = SWEEP_EVENT_APPENDED, .number = 1 });
    CHECK_NEAR(27.0, sweep_live_seconds_left(live, core, 10000), 1e-9);
    before = bytes;
    sweep_live_draw(live, core, 20000);
    CHECK(strstr(text + before, "scheduler") == NULL); /* a note disappears */
    before = bytes;
    sweep_live_free(live);
    fflush(memory);
    CHECK_CONTAINS(text + before, "\033[J");
    fclose(memory);
    free(text);
    strike();
}

TEST(only_a_terminal_that_can_move_its_cursor_is_redrawn)
{
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    FILE *file = fdopen(terminal, "w"), *plain = tmpfile();

    REQUIRE(file != NULL && plain != NULL);
    setenv("TERM", "xterm", 1);
    CHECK(show_can_redraw(file));
    CHECK(!show_can_redraw(plain));
    setenv("TERM", "dumb", 1);
    CHECK(!show_can_redraw(file));
    setenv("TERM", "", 1);
    CHECK(!show_can_redraw(file));
    unsetenv("TERM");
    CHECK(!show_can_redraw(file));
    fclose(file);
    fclose(plain);
}

TEST(the_csv_has_a_row_for_each_trial)
{
    stage();
    REQUIRE_OK(sweep_export_csv(in_folder("t.csv"), core, &folder, &plan, &err), err);
    char *text = written("t.csv");

    CHECK_TEXT("trial,state,validation-accuracy,epochs,seconds,attempts,how,solver,lr,momentum,text\n"
               "1,done,0.9,9,61.500,1,bayes,sgdm,0.1,0.9,\n"
               "2,done,0.5,9,,1,bayes,adam,0.01,,\n"
               "3,stopped,0.25,3,,1,added,adam,0.2,,\n"
               "4,failed,,1,,1,bayes,adam,0.3,,\"the loss, it seems, is not finite\"\n"
               "5,queued,,0,,1,bayes,adam,0.001,,\n",
               text);
    gp_free(text);
    CHECK_STATUS(GP_EIO, sweep_export_csv("/nowhere/t.csv", core, &folder, &plan, &err));
    strike();
}

/* The format is that of Optuna 5.0.0. The Python lines in docs/sweeps.md load such a file. */
TEST(the_optuna_journal_has_a_line_for_each_trial_that_has_ended)
{
    static const int states[] = { 1, 1, 2, 3 }; /* complete, complete, pruned, failed */

    stage();
    REQUIRE_OK(sweep_export_optuna(in_folder("t.log"), core, &folder, &plan, &err), err);
    char *text = written("t.log");
    const char *line = text;

    for (int i = 0; i < 5; i++) {
        gp_json *json = NULL;
        const size_t length = strcspn(line, "\n");

        REQUIRE_OK(gp_json_parse(&json, line, length, &err), err);
        CHECK_INT(i == 0 ? 0 : 4, gp_json_integer(gp_json_member(json, "op_code"), -1));
        if (i == 0)
            CHECK_INT(2, gp_json_integer(gp_json_element(gp_json_member(json, "directions"), 0), 0));
        else
            CHECK_INT(states[i - 1], gp_json_integer(gp_json_member(json, "state"), 0));
        if (i == 1) {
            const gp_json *params = gp_json_member(json, "params");

            CHECK_NEAR(0.9, gp_json_number(gp_json_member(json, "value"), NAN), 0);
            CHECK_INT(0, gp_json_integer(gp_json_member(params, "solver"), -1));
            CHECK_NEAR(0.1, gp_json_number(gp_json_member(params, "lr"), NAN), 0);
            CHECK_TEXT("2026-11-24T00:17:46.970000+00:00",
                       gp_json_text(gp_json_member(json, "datetime_start"), ""));
            CHECK_TEXT("{\"name\": \"FloatDistribution\", \"attributes\": {\"step\": null, \"low\": 0.0001, "
                       "\"high\": 1, \"log\": true}}",
                       gp_json_text(gp_json_member(gp_json_member(json, "distributions"), "lr"), ""));
        }
        if (i == 2) { /* momentum does not apply */
            CHECK_INT(2, (int64_t)gp_json_count(gp_json_member(json, "params")));
            CHECK_INT(2, (int64_t)gp_json_count(gp_json_member(json, "distributions")));
        }
        gp_json_free(json);
        line += length + 1;
    }
    CHECK_TEXT("", line);
    gp_free(text);
    strike();
}

TEST(the_picture_is_a_png)
{
    stage();
    REQUIRE_OK(sweep_picture_write(in_folder("t.png"), core, &plan, &err), err);
    char *text = written("t.png");

    CHECK(memcmp(text, "\x89PNG", 4) == 0);
    gp_free(text);
    strike();

    /* no trial has a value */
    stage();
    sweep_free(core);
    const sweep_config config = { .trials_max = 1,
                                  .concurrent_max = 1,
                                  .workers_min = 1,
                                  .workers_max = 1,
                                  .goal = NAN,
                                  .how = "bayes",
                                  .search = sweep_points_search(points) };

    REQUIRE_OK(sweep_new(&core, &config, ignore, NULL, &err), err);
    CHECK_STATUS(GP_ESTATE, sweep_picture_write(in_folder("u.png"), core, &plan, &err));
    CHECK_CONTAINS(err.message, "no trial has a value");
    strike();
}
