/* fuzz_trials.c: hostile journals of sweeps. A journal that is accepted has consistent trials, and
 * the state machine can begin with it. */
#include <math.h>
#include <stdlib.h>

#include "client/sweep/sweep_core.h"
#include "common/base/memory/alloc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static gp_status fuzz_ask(void *context, const char **values, gp_error *err)
{
    (void)context;
    (void)values;
    return gp_fail(err, GP_ENOENT, "no point is left");
}

static gp_status fuzz_add(void *context, const char *values, bool extra, gp_error *err)
{
    (void)context;
    (void)extra;
    (void)err;
    if (values[0] != '{')
        abort();
    return GP_OK;
}

static sweep_verdict fuzz_report(void *context, uint32_t trial, uint32_t epoch, double value)
{
    (void)context;
    (void)trial;
    (void)value;
    return epoch % 2 == 0 ? SWEEP_CONTINUE : SWEEP_NO_RUNG;
}

static void fuzz_tell(void *context, uint32_t trial, sweep_state state, double value)
{
    (void)context;
    (void)value;
    if (trial == 0 || state < SWEEP_DONE || state >= SWEEP_STATES)
        abort();
}

/* Each line that the state machine appends must be readable. */
static void act(void *context, const sweep_action *action)
{
    gp_buffer text;

    (void)context;
    if (action->kind != SWEEP_APPEND)
        return;
    gp_buffer_init(&text, 2 * SWEEP_LINE_BYTES_MAX);
    if (sweep_line_encode(&text, action->line, NULL) != GP_OK)
        abort();
    gp_buffer_deinit(&text);
}

static gp_status replay(void *context, const sweep_line *line, gp_error *err)
{
    return sweep_replay(context, line, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    int64_t live = gp_alloc_get_stats().live;
    sweep_config config = { .trials_max = 4,
                            .concurrent_max = 2,
                            .workers_min = 1,
                            .workers_max = 2,
                            .goal = NAN,
                            .how = "fuzz",
                            .search = { NULL, fuzz_ask, fuzz_add, fuzz_report, fuzz_tell } };
    sweep *core;
    size_t kept;
    gp_error err = { .code = GP_OK };

    if (sweep_new(&core, &config, act, NULL, &err) != GP_OK)
        return 0;
    if (sweep_lines_decode((const char *)data, bytes, &kept, replay, core, &err) == GP_OK) {
        if (kept > bytes)
            abort();
        sweep_step(core, &(sweep_event){ .kind = SWEEP_EVENT_BEGIN });
        sweep_step(core, &(sweep_event){ .kind = SWEEP_EVENT_HALT });
    } else if (err.message[0] == '\0') {
        abort();
    }
    sweep_free(core);
    if (gp_alloc_get_stats().live != live)
        abort();
    return 0;
}
