/* test_fault_points.c: every process is killed and suspended at every fault point while it works.
 *
 * For each point in common/base/system/fault.def and each action, a small training, job, loop,
 * block or command runs, and the documented behavior (docs/faults.md) is checked: it succeeds or
 * reports one error, the pool serves the next work at once, and nothing is left after `down`. A
 * successful training is bitwise identical to an undisturbed one.
 *
 * GRADPOOL_FAULT_LONG=1 adds suspensions that outlast every deadline. */
#include "common/base/system/fault.h"
#include "tests/fault/cases.h"
#include "tests/fault/stage.h"

typedef enum work { UP, TRAIN, JOB, BLOCK, LOOP, PRINT, COMMAND, PREDICT, DOWN, GROW, WORKS } work;

/* Possible results when a process other than the command itself is killed. */
typedef enum promise {
    ENDS_WELL,
    MAY_FAIL, /* succeeds or reports one error: the work depends on the killed process */
} promise;

typedef struct row {
    const char *point;
    unsigned nth;
    work work;
    promise killed;
    const char *where; /* "2.1": worker 2, first incarnation */
    const char *after; /* another fault, which causes the point to be reached */
} row;

static const row rows[] = {
    { "locked", 1, UP, MAY_FAIL, "1.1", NULL },
    { "opened", 1, UP, MAY_FAIL, "1.1", NULL },
    { "spawning", 2, UP, MAY_FAIL, "1.1", NULL },
    { "spawned", 2, UP, MAY_FAIL, "1.1", NULL },
    { "welcoming", 2, TRAIN, ENDS_WELL, "1.1", NULL },
    { "knocked", 2, TRAIN, ENDS_WELL, "1.1", NULL },
    { "asked", 1, TRAIN, ENDS_WELL, "1.1", NULL },
    { "granting", 1, TRAIN, ENDS_WELL, "1.1", NULL },
    { "granted", 1, TRAIN, ENDS_WELL, "1.1", NULL },
    { "answered", 1, TRAIN, ENDS_WELL, "1.1", NULL },
    { "revoking", 1, TRAIN, ENDS_WELL, "1.1", NULL },
    { "reaped", 1, TRAIN, ENDS_WELL, "1.1", "forward:2:kill@1.1" },
    { "adopting", 2, TRAIN, ENDS_WELL, "1.2", "answered:1:kill@1.1" },
    { "journal-write", 1, JOB, ENDS_WELL, "1.1", NULL },
    { "journal-write", 3, JOB, ENDS_WELL, "1.1", NULL },
    { "journal-written", 1, JOB, ENDS_WELL, "1.1", NULL },
    { "journal-written", 3, JOB, ENDS_WELL, "1.1", NULL },
    { "job-accepted", 1, JOB, ENDS_WELL, "1.1", NULL },
    { "job-spawned", 1, JOB, ENDS_WELL, "1.1", NULL },
    { "job-going", 1, JOB, ENDS_WELL, "1.1", NULL },
    { "job-reaped", 1, JOB, ENDS_WELL, "1.1", NULL },
    { "closing", 1, DOWN, ENDS_WELL, "1.1", NULL },

    { "claimed", 1, TRAIN, ENDS_WELL, "1.1", NULL },
    { "reporting", 1, TRAIN, ENDS_WELL, "1.1", NULL },
    { "leased", 1, TRAIN, ENDS_WELL, "1.1", NULL },
    { "attached", 1, TRAIN, ENDS_WELL, "1.1", NULL },
    { "attached", 1, BLOCK, MAY_FAIL, "2.1", NULL },
    { "orphaned", 1, TRAIN, ENDS_WELL, "2.1", "answered:1:kill@1.1" },
    { "ready", 1, TRAIN, ENDS_WELL, "1.1", NULL },
    { "loading", 1, TRAIN, ENDS_WELL, "2.1", NULL },
    { "prepared", 1, GROW, ENDS_WELL, "1.2", "forward:2:kill@1.1" },
    { "forward", 3, TRAIN, ENDS_WELL, "1.1", NULL },
    { "exchange", 6, TRAIN, ENDS_WELL, "3.1", NULL },
    { "between-buckets", 4, TRAIN, ENDS_WELL, "1.1", NULL },
    { "commit", 5, TRAIN, ENDS_WELL, "2.1", NULL },
    { "validation", 2, TRAIN, ENDS_WELL, "1.1", NULL },
    { "checkpoint", 2, TRAIN, ENDS_WELL, "1.1", NULL },
    { "checkpoint-written", 1, TRAIN, ENDS_WELL, "1.1", NULL },
    { "checkpoint-written", 2, TRAIN, ENDS_WELL, "1.1", NULL },
    { "checkpoint-renamed", 1, TRAIN, ENDS_WELL, "1.1", NULL },
    { "done", 1, TRAIN, ENDS_WELL, "1.1", NULL },
    { "revoked", 1, TRAIN, ENDS_WELL, "2.1", NULL },
    { "predict", 1, PREDICT, ENDS_WELL, "1.1", NULL },
    { "task_begin", 1, BLOCK, MAY_FAIL, "2.1", NULL },
    { "task_done", 1, BLOCK, MAY_FAIL, "1.1", NULL },
    { "task_answered", 1, BLOCK, MAY_FAIL, "1.1", NULL },
    { "task_begin", 3, LOOP, ENDS_WELL, "2.1", NULL },
    { "task_done", 3, LOOP, ENDS_WELL, "1.1", NULL },
    { "task_answered", 3, LOOP, ENDS_WELL, "1.1", NULL },
    { "task_output", 2, PRINT, ENDS_WELL, "1.1", NULL },

    { "command-begin", 1, COMMAND, MAY_FAIL, "1.1", NULL },
    { "command-started", 1, COMMAND, MAY_FAIL, "1.1", NULL },
    { "command-ended", 1, COMMAND, MAY_FAIL, "1.1", NULL },

    { "starting", 1, UP, MAY_FAIL, "1.1", NULL },
    { "dialled", 1, TRAIN, MAY_FAIL, "1.1", NULL },
    { "lease-asked", 1, TRAIN, MAY_FAIL, "1.1", NULL },
    { "lease-held", 1, TRAIN, MAY_FAIL, "1.1", NULL },
    { "lease-held", 1, LOOP, MAY_FAIL, "1.1", NULL },
    { "lease-attached", 1, BLOCK, MAY_FAIL, "1.1", NULL },
    { "train-begun", 1, TRAIN, MAY_FAIL, "1.1", NULL },
    { "train-step", 2, TRAIN, MAY_FAIL, "1.1", NULL },
    { "train-done", 1, TRAIN, MAY_FAIL, "1.1", NULL },
    { "lease-released", 1, TRAIN, MAY_FAIL, "1.1", NULL },
    { "file-written", 1, TRAIN, MAY_FAIL, "1.1", NULL },
    { "submitting", 1, JOB, MAY_FAIL, "1.1", NULL },
    { "job-begun", 1, JOB, MAY_FAIL, "1.1", NULL },
    { "job-ending", 1, JOB, MAY_FAIL, "1.1", NULL },
};

typedef struct action {
    const char *word;
    int64_t hold_ms;
    bool always;
} action;

static const action actions[] = {
    { "kill", 0, true },
    { "stop", 150, true },
    { "stop", 3000, false },  /* longer than the timeout for replies and grants */
    { "stop", 17000, false }, /* longer than the limit for a silent worker */
};

enum {
    ROWS = sizeof(rows) / sizeof(rows[0]),
    ACTIONS = sizeof(actions) / sizeof(actions[0]),
    DEADLINES_MS = 15000,
    REACHED_MS = 5000,
    INTERRUPTED = 130
};

/* ---- work ---- */

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define TRAIN_WORDS                                                                                          \
    "train", "--network", reference_network, "--data", "digits:240", "--max-epochs", "2",                    \
        "--mini-batch-size", "60", "--validation-frequency", "3", "--checkpoint-path", "ck",                 \
        "--checkpoint-frequency", "2", "--checkpoint-frequency-unit", "iteration", "--seed", "7",            \
        "--exchange-bucket-bytes", "16384", "--min-workers", "3", "--out", "m.onnx"

static char reference_network[100], reference_model[100], reference_root[32];

static const char network[] =
    "{\"name\": \"tiny\", \"input\": [1, 28, 28], \"scale\": [0.0039], \"offset\": [0], \"layers\": ["
    "{\"name\": \"fc1\", \"kind\": \"fc\", \"outputs\": 24}, {\"name\": \"relu1\", \"kind\": \"relu\"},"
    "{\"name\": \"fc2\", \"kind\": \"fc\", \"outputs\": 10}, {\"name\": \"loss\", \"kind\": "
    "\"crossentropy\"}]}";

/* Store the commands for a kind of work, in order; out[] is NULL-terminated. */
static void commands_of(const char *const *out[3], work what)
{
    static const char *const up[] = { "up", "--workers", "3", NULL }, *const down[] = { "down", NULL };
    static const char *const train[] = { TRAIN_WORDS, NULL }, *const wait_job[] = { "wait", "1", NULL };
    static const char *const submit[] = { "submit", "--", TRAIN_WORDS, NULL };
    static const char *const block[] = { "spmd", "-n", "3", TASKS_RANKS ":sum", NULL };
    static const char *const loop[] = { "parfor",   "1:300",     TASKS_LOOPS ":series",
                                        "--reduce", "sum:f64:2", "--chunk",
                                        "10",       NULL };
    static const char *const print[] = { "parfor", "-n", "1", "1:9", TASKS_LOOPS ":print", "--log", NULL };
    static const char *const command[] = { "spmd", "-n", "3", "--", "sh", "-c", "echo $GRADPOOL_RANK", NULL };
    static const char *const predict[] = { "predict", "--model", reference_model, "--data", "digits:3000",
                                           "--out",   "p.csv",   "--workers",     "1",      NULL };
    static const char *const grow[] = {
        "train", "--network", reference_network, "--data", "digits:240", "--max-epochs",

        /* more epochs than needed: case_run() stops it after a joined worker has taken steps */
        "1000000", "--mini-batch-size", "60", "--seed", "7", "--min-workers", "2", "--validation-data",
        "none", "--quiet", NULL
    };
    const char *const *const first[WORKS] = {
        [UP] = up,       [TRAIN] = train,     [JOB] = submit,      [BLOCK] = block, [LOOP] = loop,
        [PRINT] = print, [COMMAND] = command, [PREDICT] = predict, [DOWN] = down,   [GROW] = grow
    };

    out[0] = first[what];
    out[1] = what == JOB ? wait_job : NULL;
    out[2] = NULL;
}

static bool same_file(const char *one, const char *other)
{
    FILE *a = fopen(one, "rb"), *b = fopen(other, "rb");
    int x = a != NULL && b != NULL ? 0 : EOF, y = 1;

    for (y = x == EOF ? 0 : y; x != EOF;) {
        x = fgetc(a);
        y = fgetc(b);
        if (x != y)
            break;
    }
    if (a != NULL)
        fclose(a);
    if (b != NULL)
        fclose(b);
    return x == EOF && y == EOF;
}

/* Run the undisturbed reference training once for all cases. */
static bool reference_make(void)
{
    stage_begin();
    strcpy(reference_root, pools_root);
    snprintf(reference_network, sizeof(reference_network), "%s/tiny.json", pools_root);
    snprintf(reference_model, sizeof(reference_model), "%s/w/m.onnx", pools_root);
    FILE *file = fopen(reference_network, "w");

    fputs(network, file);
    fclose(file);
    bool done = STAGE_RUN("up", "--workers", "3") == 0 && STAGE_RUN(TRAIN_WORDS) == 0;

    if (!done)
        GP_TEST_FAIL("no reference: %s", stage_err);
    CHECK_INT(0, STAGE_RUN("down"));
    return done;
}

static void reference_remove(void)
{
    leftovers_clear(reference_root);
}

/* ---- a case ---- */

typedef struct fault_case {
    const row *row;
    const action *action;
} fault_case;

static const gp_fault_entry *entry_of(const char *point)
{
    const gp_fault_entry *entry = gp_fault_points;

    while (entry->point != NULL && strcmp(entry->point, point) != 0)
        entry++;
    return entry;
}

static void check_work(const fault_case *c, const gp_fault_entry *entry, int code)
{
    bool kill = strcmp(c->action->word, "kill") == 0, client = entry->process == GP_FAULT_client;
    const char *what = c->row->point;

    /* A process suspended beyond all deadlines may be abandoned, with one error. */
    bool given_up = c->action->hold_ms > DEADLINES_MS &&
                    (entry->process == GP_FAULT_scheduler || strcmp(what, "attached") == 0);

    if (code == STAGE_LATE)
        GP_TEST_FAIL("%s: does not end: %s", what, stage_err);
    else if (kill && client && c->row->work != JOB)
        CHECK_INT(STAGE_KILLED, code);
    else if (code != 0 && !given_up && (!kill || c->row->killed == ENDS_WELL))
        GP_TEST_FAIL("%s: exit code %d: %s", what, code, stage_err);
    else if (code > 0 && c->row->work != JOB)
        stage_check_error(what);
    if (code == 0 && c->row->work == TRAIN && !same_file(in_root("w/m.onnx"), reference_model))
        GP_TEST_FAIL("%s: the models differ", what);
}

static int run_work(const fault_case *c, const gp_fault_entry *entry, const char *faults)
{
    bool client = entry->process == GP_FAULT_client;
    const char *const *commands[3];
    int code = 0;

    commands_of(commands, c->row->work);
    if (c->row->work != UP) {
        code = stage_finish(stage_start(client ? NULL : faults, WORDS("up", "--workers", "3")),
                            c->action->hold_ms);
        if (code > 0 && c->action->hold_ms > DEADLINES_MS)
            return code;
        if (code != 0)
            GP_TEST_FAIL("up: exit code %d: %s", code, stage_err);
    }
    stage_enough = c->row->work == GROW ? "forward stop" : NULL;
    for (int i = 0; commands[i] != NULL && (code == 0 || code == STAGE_KILLED); i++)
        code = stage_finish(stage_start(faults, commands[i]), c->action->hold_ms);
    return c->row->work == GROW && code == INTERRUPTED ? 0 : code;
}

/* Return whether to try again. Idle workers take parts of a loop or a prediction, so a worker
 * without a free core may get none. The fault point was then not reached, and the case proves
 * nothing. */
static bool others_took_the_work(work what, int tries)
{
    enum { TRIES = 20 };

    return (what == LOOP || what == PREDICT) && tries < TRIES;
}

/* Return whether the point was reached within the time, and get the reported points. A worker may
 * reach it shortly after the command has exited. */
static bool was_reached(const char *point, int64_t wait_ms, char *reported, size_t bytes)
{
    for (gp_timeout timeout = gp_timeout_in(wait_ms);; gp_sleep_ms(2)) {
        const bool late = gp_timeout_left(timeout) == 0;

        slurp(in_root("told"), reported, bytes);
        if (strstr(reported, point) != NULL || late)
            return strstr(reported, point) != NULL;
    }
}

static void case_run(void *context, size_t i)
{
    const fault_case *c = (const fault_case *)context + i;
    const gp_fault_entry *entry = entry_of(c->row->point);

    /* Interrupt the training once a joined worker, or the next one, has taken part. */
    const char *part = c->row->work == GROW ? ",forward:5:stop@1.2,forward:5:stop@1.3" : "";
    char faults[160], reported[400];
    bool reached;

    snprintf(faults, sizeof(faults), "%s%s%s:%u:%s@%s%s", c->row->after != NULL ? c->row->after : "",
             c->row->after != NULL ? "," : "", c->row->point, c->row->nth, c->action->word, c->row->where,
             part);
    for (int tries = 1;; tries++) {
        stage_begin();
        check_work(c, entry, run_work(c, entry, faults));
        const bool again = others_took_the_work(c->row->work, tries);

        reached = was_reached(c->row->point, again ? 0 : REACHED_MS, reported, sizeof(reported));
        stage_continue(c->action->hold_ms);
        if (reached || !again)
            break;
        if (STAGE_RUN("down") != 0)
            GP_TEST_FAIL("down: %s", stage_err);
        stage_end();
    }
    if (!reached)
        GP_TEST_FAIL("%s was not reached; reached points: %s", c->row->point, reported);

    /* In any case, the pool or a newly started one serves all workers to the next client. */
    if (c->row->work != DOWN) {
        if (STAGE_RUN("up", "--workers", "3") != 0)
            GP_TEST_FAIL("up again: %s", stage_err);
        if (STAGE_RUN("spmd", "-n", "3", "--", "true") != 0)
            GP_TEST_FAIL("the next work: %s", stage_err);
        if (STAGE_RUN("down") != 0)
            GP_TEST_FAIL("down: %s", stage_err);
    }
    stage_check_left();
    stage_end();
}

static const char *case_name(void *context, size_t i)
{
    static const char *const works[] = { "up",    "training", "job",        "block", "loop",
                                         "print", "command",  "prediction", "down",  "growing training" };
    const fault_case *c = (const fault_case *)context + i;
    static char name[120];

    snprintf(name, sizeof(name), "%s %s:%u:%s for %d ms in %s", works[c->row->work], c->row->point,
             c->row->nth, c->action->word, (int)c->action->hold_ms, c->row->where);
    return name;
}

TEST(pool_recovers_from_a_kill_or_stop_at_every_fault_point)
{
    static fault_case cases[ROWS * ACTIONS];
    const char *only = getenv("GRADPOOL_FAULT_ONLY"), *at_once = getenv("GRADPOOL_FAULT_AT_ONCE");
    case_list list = {
        .run = case_run, .name = case_name, .context = cases, .at_once = at_once != NULL ? atoi(at_once) : 4
    };
    bool all = getenv("GRADPOOL_FAULT_LONG") != NULL;

    for (size_t a = 0; a < ACTIONS; a++)
        for (size_t r = 0; r < ROWS; r++)
            if ((actions[a].always || all || (actions[a].hold_ms == 3000 && rows[r].after != NULL)) &&
                (only == NULL || strcmp(only, rows[r].point) == 0))
                cases[list.count++] = (fault_case){ &rows[r], &actions[a] };
    if (reference_make())
        cases_run(&list);
    reference_remove();
}

TEST(every_point_of_the_table_has_a_row)
{
    for (const gp_fault_entry *entry = gp_fault_points; entry->point != NULL; entry++) {
        /* Other tests cover these groups: tests/client/cluster/test_drive.c and tests/cluster,
         * tests/service/sweep/test_sweep.c, tests/service/team/test_detached_kills.c,
         * tests/service/test_owned_pool.c */
        static const char *const elsewhere[] = { "cluster-", "sweep-", "result-", "owner-" };
        bool found = false;

        for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++)
            found = found || strncmp(entry->point, elsewhere[i], strlen(elsewhere[i])) == 0;
        for (size_t r = 0; r < ROWS; r++)
            found = found || strcmp(rows[r].point, entry->point) == 0;
        if (!found)
            GP_TEST_FAIL("%s has no test", entry->point);
    }
    for (size_t r = 0; r < ROWS; r++)
        if (entry_of(rows[r].point)->point == NULL)
            GP_TEST_FAIL("%s is not in the table", rows[r].point);
}
