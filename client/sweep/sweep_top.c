#include "client/sweep/sweep_top.h"

#include "common/base/memory/alloc.h"

gp_status sweep_top_init(sweep_top *top, uint32_t count_max, bool minimize, gp_error *err)
{
    *top = (sweep_top){ .count_max = count_max, .minimize = minimize };
    top->trials = gp_calloc((size_t)count_max + 1, sizeof(*top->trials));
    return top->trials != NULL ? GP_OK : gp_fail(err, GP_ENOMEM, "no memory for the best trials of a sweep");
}

void sweep_top_deinit(sweep_top *top)
{
    gp_free(top->trials);
    *top = (sweep_top){ .trials = NULL };
}

static bool is_better(const sweep_top *top, const sweep_top_trial *a, const sweep_top_trial *b)
{
    return a->value == b->value ? a->number < b->number : (a->value < b->value) == top->minimize;
}

uint32_t sweep_top_add(sweep_top *top, uint32_t number, double value)
{
    const sweep_top_trial added = { value, number };
    uint32_t at = top->count;

    for (; at > 0 && is_better(top, &added, &top->trials[at - 1]); at--)
        top->trials[at] = top->trials[at - 1];
    top->trials[at] = added;
    if (top->count < top->count_max) {
        top->count++;
        return 0;
    }
    return top->trials[top->count].number;
}
