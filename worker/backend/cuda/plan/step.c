/* Lists of steps. */
#include "worker/backend/cuda/plan/step.h"

#include "common/base/memory/alloc.h"

step *gp_step_add(step_list *list, step_kind kind, uint32_t op)
{
    step *grown = gp_array_grow(list->step, list->count, sizeof(*grown));

    if (grown == NULL)
        return NULL;
    list->step = grown;
    list->step[list->count] = (step){ .kind = kind, .op = op };
    return &list->step[list->count++];
}

void gp_step_cut(step_list *list, uint32_t count)
{
    while (list->count > count)
        gp_device_work_free(list->step[--list->count].work);
}

void gp_step_list_free(step_list *list)
{
    gp_step_cut(list, 0);
    gp_free(list->step);
}

static void step_move(step *s, const plan_region regions[REGIONS])
{
    gp_device_operands *const at = &s->at;

    for (int k = 0; k < GP_KERNEL_IMAGES; k++)
        s->args.x[k].data = gp_region_address(regions, s->args.x[k].data);
    for (int k = 0; k < 2; k++) {
        s->args.y[k].data = gp_region_address(regions, s->args.y[k].data);
        s->args.d[k] = gp_region_address(regions, s->args.d[k]);
    }
    for (int k = 0; k < GP_KERNEL_FLOATS; k++)
        s->args.f[k] = gp_region_address(regions, s->args.f[k]);
    s->args.bytes = gp_region_address(regions, s->args.bytes);
    *at = (gp_device_operands){ .first = gp_region_address(regions, at->first),
                                .second = gp_region_address(regions, at->second),
                                .out = gp_region_address(regions, at->out),
                                .vector = gp_region_address(regions, at->vector),
                                .image = gp_region_address(regions, at->image),
                                .mask = gp_region_address(regions, at->mask),
                                .sums = gp_region_address(regions, at->sums) };
    s->sums = gp_region_address(regions, s->sums);
}

void gp_step_move(step_list *list, uint32_t first, const plan_region regions[REGIONS])
{
    for (uint32_t i = first; i < list->count; i++)
        step_move(&list->step[i], regions);
}
