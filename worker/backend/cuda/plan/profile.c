#include "worker/backend/cuda/plan/profile.h"

#include "common/base/memory/alloc.h"

struct plan_profile {
    gp_profile_line *lines; /* [count]: parts, plan->prepare, plan->steps */
    uint32_t *order;        /* [count]: lines of the current call in launch order */
    uint32_t count;
    uint32_t launched; /* lines in `order`, whose times are not added yet */
};

static gp_profile_line line_of(const gp_plan *plan, const step *s)
{
    static const char *const kernels[] = {
#define GP_KERNEL(name) [GP_KERNEL_##name] = #name,
#include "worker/backend/cuda/kernels/kernels.def"
#undef GP_KERNEL
    };
    const gp_ops *ops = &plan->graph->ops[plan->options.phase];
    const bool of_op = s->op < ops->count; /* the check for finite gradients belongs to no op */

    return (gp_profile_line){ .what = of_op ? gp_op_name(plan->ops[s->op].code) : "gradients",
                              .kernel = s->kind == STEP_KERNEL ? kernels[s->kernel]
                                        : s->work != NULL      ? gp_device_work_engine(s->work)
                                                               : "host",
                              .layer = of_op ? plan->ops[s->op].layer : GP_INPUT_LAYER,
                              .forward = s->op < ops->forward_count };
}

static void lines_fill(const gp_plan *plan, gp_profile_line *line)
{
    static const char *const parts[PART_COUNT] = { [PART_INPUT] = "input",
                                                   [PART_EXCHANGE] = "exchange",
                                                   [PART_COMMIT] = "commit",
                                                   [PART_OUTPUT] = "output" };

    for (int i = 0; i < PART_COUNT; i++)
        *line++ = (gp_profile_line){ .what = parts[i],
                                     .kernel = "",
                                     .layer = GP_INPUT_LAYER,
                                     .forward = i == PART_INPUT || i == PART_OUTPUT };
    for (uint32_t i = 0; i < plan->prepare.count; i++)
        *line++ = line_of(plan, &plan->prepare.step[i]);
    for (uint32_t i = 0; i < plan->steps.count; i++)
        *line++ = line_of(plan, &plan->steps.step[i]);
}

/* Return the mark before the line with this index in launch order. The first marks measure the
 * passes (plan.c). */
static uint32_t mark_of(uint32_t index)
{
    return GP_DEVICE_MARKS + index;
}

static gp_status profile_start(gp_plan *plan, gp_error *err)
{
    const uint32_t count = PART_COUNT + plan->prepare.count + plan->steps.count;
    plan_profile *profile = gp_calloc(1, sizeof(*profile));
    gp_status status = GP_OK;

    if (profile != NULL) {
        profile->count = count;
        profile->lines = gp_calloc(count, sizeof(*profile->lines));
        profile->order = gp_calloc(count, sizeof(*profile->order));
    }
    if (profile == NULL || profile->lines == NULL || profile->order == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for a profile of %u steps", count);
    if (status == GP_OK)
        status = gp_device_marks(plan->backend->device, mark_of(count) + 1, err);
    if (status != GP_OK) {
        gp_profile_free(profile);
        return status;
    }
    lines_fill(plan, profile->lines);
    plan->profile = profile;
    return GP_OK;
}

gp_status gp_plan_profile(gp_plan *plan, gp_profile_fn fn, void *context, gp_error *err)
{
    gp_status status;

    if (plan->profile == NULL)
        return profile_start(plan, err);
    status = gp_profile_begin(plan, err);
    for (uint32_t i = 0; i < plan->profile->count && fn != NULL && status == GP_OK; i++)
        fn(context, &plan->profile->lines[i]);
    return status;
}

void gp_profile_free(plan_profile *profile)
{
    if (profile == NULL)
        return;
    gp_free(profile->order);
    gp_free(profile->lines);
    gp_free(profile);
}

gp_status gp_profile_begin(gp_plan *plan, gp_error *err)
{
    plan_profile *profile = plan->profile;
    gp_device *device = plan->backend->device;
    gp_status status;

    if (profile == NULL || profile->launched == 0)
        return GP_OK;
    status = gp_device_sync(device, err);
    for (uint32_t i = 0; i < profile->launched && status == GP_OK; i++)
        profile->lines[profile->order[i]].ns += gp_device_between_ns(device, mark_of(i), mark_of(i + 1));
    profile->launched = 0;
    return status;
}

static gp_status line_begin(gp_plan *plan, uint32_t line, gp_error *err)
{
    plan_profile *profile = plan->profile;

    if (profile->launched == profile->count)
        return gp_fail(err, GP_ELIMIT, "a profiled call has at most %u steps", profile->count);
    profile->order[profile->launched] = line;
    return gp_device_mark(plan->backend->device, mark_of(profile->launched++), err);
}

gp_status gp_profile_step(gp_plan *plan, const step *s, gp_error *err)
{
    const step_list *prepare = &plan->prepare;

    if (plan->profile == NULL)
        return GP_OK;
    for (uint32_t i = 0; i < prepare->count; i++)
        if (s == &prepare->step[i])
            return line_begin(plan, PART_COUNT + i, err);
    return line_begin(plan, PART_COUNT + prepare->count + (uint32_t)(s - plan->steps.step), err);
}

gp_status gp_profile_part(gp_plan *plan, plan_part part, gp_error *err)
{
    return plan->profile == NULL ? GP_OK : line_begin(plan, part, err);
}

gp_status gp_profile_end(gp_plan *plan, gp_error *err)
{
    return plan->profile == NULL
               ? GP_OK
               : gp_device_mark(plan->backend->device, mark_of(plan->profile->launched), err);
}
