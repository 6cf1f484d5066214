/* Implement sweep_verbs.h. */
#include "client/cli/sweep/sweep_verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/cli/sweep/sweep_find.h"
#include "client/cli/sweep/sweep_words.h"
#include "client/sweep/sweep_inbox.h"
#include "client/sweep/sweep_points.h"
#include "client/sweep/sweep_run.h"
#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"

enum { PATH = SWEEP_PATH_MAX + 100, REPLY_MS = 30000, CHECK_MS = 20, REASON_BYTES = 200 };

/* A sweep as a request needs it. */
typedef struct asking {
    sweep_folder folder;
    sweep_plan plan;
    sweep *core; /* trials so far */
} asking;

static bool is_quiet(const cli_call *call)
{
    return ((const sweep_options *)call->options)->common.quiet;
}

static gp_status load(asking *a, gp_error *err)
{
    char *importance = NULL;
    sweep *core = NULL;
    gp_status status = sweep_load(&core, &importance, &a->folder, &a->plan, err);

    gp_buffer_free(importance);
    if (status != GP_OK)
        return status;
    sweep_free(a->core);
    a->core = core;
    return GP_OK;
}

static gp_status open_sweep(asking *a, const cli_call *call, const char *word, gp_error *err)
{
    char path[SWEEP_PATH_MAX];
    gp_status status = sweep_find_folder(path, call, word, err);

    *a = (asking){ .core = NULL };
    sweep_plan_init(&a->plan);
    if (status == GP_OK)
        status = sweep_folder_open(&a->folder, path, false, &a->plan, err);
    return status == GP_OK ? load(a, err) : status;
}

static void close_sweep(asking *a)
{
    sweep_free(a->core);
    sweep_plan_deinit(&a->plan);
}

/* ---- values ---- */

/* Find a value of a list by its text. NULL: no such value. */
static const gp_space_value *find_listed(const gp_space *space, const char *name, const char *text)
{
    const uint32_t index = gp_space_find(space, name);
    const gp_space_parameter *p = index < space->count ? &space->parameters[index] : NULL;

    for (uint32_t i = 0; p != NULL && p->kind == GP_SPACE_LIST && i < p->count; i++)
        if (strcmp(p->values[i].text, text) == 0)
            return &p->values[i];
    return NULL;
}

/* Append the value of a word as JSON. A listed text stays a text; another word is a number, true,
 * false or a text. */
static void put_word_value(gp_json_writer *writer, const gp_space *space, const char *name, const char *text)
{
    const gp_space_value *listed = find_listed(space, name, text);
    char *end;
    double number = strtod(text, &end);

    if (listed != NULL && listed->is_text)
        gp_json_put_text(writer, name, text);
    else if (text[0] != '\0' && *end == '\0' && isfinite(number) &&
             strspn(text, "0123456789+-.eE") == strlen(text))
        gp_json_put_number(writer, name, number);
    else if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        gp_json_put_bool(writer, name, text[0] == 't');
    else
        gp_json_put_text(writer, name, text);
}

/* Write the words NAME=VALUE as JSON, and check that they are a point of the space. */
static gp_status put_values(gp_buffer *out, const sweep_plan *plan, const char *const *words, int count,
                            gp_error *err)
{
    sweep_points *points = NULL;
    gp_space *space = NULL;
    gp_json_writer writer;
    gp_status status = sweep_points_space(&space, plan, err);
    char name[100];

    gp_json_writer_init(&writer, out, false);
    gp_json_begin_object(&writer, NULL);
    for (int i = 0; status == GP_OK && i < count; i++) {
        const char *equals = strchr(words[i], '=');

        if (equals == NULL || equals == words[i] || equals - words[i] >= (ptrdiff_t)sizeof(name)) {
            status = gp_fail(err, GP_EINVAL, "'%.80s' is not NAME=VALUE", words[i]);
            break;
        }
        snprintf(name, sizeof(name), "%.*s", (int)(equals - words[i]), words[i]);
        put_word_value(&writer, space, name, equals + 1);
    }
    gp_json_end_object(&writer);
    gp_space_free(space);
    if (status == GP_OK)
        status = gp_json_writer_finish(&writer, err);
    if (status == GP_OK)
        status = sweep_points_new(&points, plan, err);
    if (status == GP_OK) {
        sweep_search search = sweep_points_search(points);

        status = search.add(search.context, gp_buffer_text(out), true, err);
    }
    sweep_points_free(points);
    return status;
}

/* ---- replies ---- */

static gp_status refuse_ended(const sweep_folder *folder, uint32_t trials, gp_error *err)
{
    return gp_fail(err, GP_ESTATE,
                   "the sweep has ended with %" PRIu32 " trials; to continue it: gradpool sweep --resume %s, "
                   "with --trials N or --retry-failed",
                   trials, folder->path);
}

/* Lock the sweep without waiting, and clear the process id of the last controller: the system may
 * have reused it. Return the descriptor of the lock; -1: a controller holds it. */
static int try_lock(const sweep_folder *folder)
{
    char path[PATH];
    int fd;

    snprintf(path, sizeof(path), "%s/lock", folder->path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && gp_file_lock(fd) == GP_OK) {
        const bool cleared = ftruncate(fd, 0) == 0;

        (void)cleared; /* on failure, other commands may report a stale process id */
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Print the trial of a request that the controller took, or fail with its reason. */
static gp_status report(const cli_call *call, asking *a, const char *number, gp_error *err)
{
    char path[PATH], reason[REASON_BYTES] = "the sweep has ended";
    uint8_t *text = NULL;
    size_t bytes;
    uint32_t trial;
    gp_status status = load(a, err);

    if (status != GP_OK)
        return status;
    trial = sweep_requested(a->core, number);
    if (trial == 0) {
        sweep_inbox_path(&a->folder, number, ".refused", path);
        if (gp_file_read(&text, &bytes, path, sizeof(reason) - 1, NULL) == GP_OK)
            snprintf(reason, sizeof(reason), "%s", (const char *)text);
        gp_free(text);
        unlink(path);
        return gp_fail(err, GP_ESTATE, "refused: %s", reason);
    }
    if (!is_quiet(call))
        printf("trial %" PRIu32 "\n", trial);
    return GP_OK;
}

/* Settle a request while no controller runs: report its trial if the journal has the request,
 * otherwise withdraw it. The caller holds the lock. */
static gp_status settle(const cli_call *call, asking *a, const char *number, gp_error *err)
{
    char path[PATH];
    gp_status status = load(a, err);

    sweep_inbox_path(&a->folder, number, ".json", path);
    if (status != GP_OK)
        return status;
    if (sweep_requested(a->core, number) != 0 || access(path, F_OK) != 0)
        return report(call, a, number, err);
    return unlink(path) == 0 ? refuse_ended(&a->folder, sweep_count(a->core), err)
                             : gp_fail_errno(err, GP_EIO, "cannot remove %s", path);
}

/* Wait until the controller has taken a request, or has exited. */
static gp_status await_reply(const cli_call *call, asking *a, const char *number, gp_error *err)
{
    const int64_t deadline = gp_now_ms() + REPLY_MS;
    char path[PATH];
    gp_status status;
    int lock;

    sweep_inbox_path(&a->folder, number, ".json", path);
    while (access(path, F_OK) == 0 && gp_now_ms() < deadline && cli_stop == 0) {
        lock = try_lock(&a->folder);
        if (lock >= 0) { /* no controller can take the file now */
            status = settle(call, a, number, err);
            close(lock);
            return status;
        }
        gp_sleep_ms(CHECK_MS);
    }
    if (access(path, F_OK) != 0)
        return report(call, a, number, err);
    cli_note(NULL, "no reply from the sweep yet; it will read the request from its inbox");
    return GP_OK;
}

/* Send a request.
 *   values  NULL: retry the trial `retry` */
static gp_status ask(const cli_call *call, asking *a, const char *values, uint32_t retry, gp_error *err)
{
    char number[SWEEP_REQUEST_BYTES];
    const int lock = try_lock(&a->folder);
    bool ended = false;
    gp_status status = GP_OK;

    if (lock >= 0)
        status = sweep_has_ended(&ended, &a->folder, &a->plan, err);
    if (status == GP_OK && ended && sweep_has_goal(a->core))
        status = gp_fail(err, GP_ESTATE,
                         "the sweep has reached its goal; to continue it: gradpool sweep --resume %s --until "
                         "VALUE, with another value",
                         a->folder.path);
    else if (status == GP_OK && ended)
        status = refuse_ended(&a->folder, sweep_count(a->core), err);
    if (status == GP_OK)
        status = sweep_inbox_put(&a->folder, values, retry, number, err);
    if (lock >= 0)
        close(lock);
    if (status != GP_OK)
        return status;
    if (lock < 0)
        return await_reply(call, a, number, err);
    if (!is_quiet(call))
        printf("queued; no process runs the sweep: gradpool sweep --resume %s\n", a->folder.path);
    return GP_OK;
}

/* ---- verbs ---- */

gp_status sweep_verb_add(const cli_call *call, const char *const *words, int count, gp_error *err)
{
    asking a;
    gp_buffer values;
    gp_status status = open_sweep(&a, call, words[0], err);

    gp_buffer_init(&values, SWEEP_REQUEST_FILE_MAX);
    if (status == GP_OK)
        status = put_values(&values, &a.plan, words + 1, count - 1, err);
    if (status == GP_OK)
        status = ask(call, &a, gp_buffer_text(&values), 0, err);
    gp_buffer_deinit(&values);
    close_sweep(&a);
    return status;
}

gp_status sweep_verb_retry(const cli_call *call, const char *const *words, gp_error *err)
{
    asking a;
    const sweep_trial *trial = NULL;
    char *end;
    unsigned long number;
    gp_status status = open_sweep(&a, call, words[0], err);

    number = strtoul(words[1], &end, 10);
    if (status == GP_OK && *end == '\0' && number <= SWEEP_TRIALS_MAX)
        trial = sweep_find(a.core, (uint32_t)number);
    if (status == GP_OK && trial == NULL)
        status = gp_fail(err, GP_EINVAL, "there is no trial '%s'; the sweep has %" PRIu32, words[1],
                         sweep_count(a.core));
    if (status == GP_OK && !sweep_can_retry(trial))
        status =
            gp_fail(err, GP_EINVAL, "trial %lu is %s; only failed, lost and stopped trials can be retried",
                    number, trial->repeat > 0 ? "a repeat" : sweep_state_word(trial->state));
    if (status == GP_OK)
        status = ask(call, &a, NULL, (uint32_t)number, err);
    close_sweep(&a);
    return status;
}
