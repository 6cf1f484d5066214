/* Regions, steps and stretches. */
#include "worker/backend/cuda/plan/step.h"

#include <assert.h>

#include "common/base/memory/alloc.h"

/* Placeholders are outside the address space. Those of region `which` start at (which + 1) <<
 * BASE_SHIFT. */
enum { BASE_SHIFT = 60, ALIGNMENT = 256 };

void *gp_region_reserve(plan_region regions[REGIONS], int which, size_t *offset, size_t bytes)
{
    const uintptr_t placeholder = ((uintptr_t)which + 1) << BASE_SHIFT | *offset;

    *offset += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (*offset > regions[which].bytes)
        regions[which].bytes = *offset;
    return (void *)placeholder;
}

void *gp_region_address(const plan_region regions[REGIONS], const void *pointer)
{
    const uintptr_t at = (uintptr_t)pointer, region = at >> BASE_SHIFT;

    assert(region <= REGIONS);
    return region == 0 ? (void *)at : regions[region - 1].at + (at - (region << BASE_SHIFT));
}

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

void gp_step_move(step_list *list, uint32_t first, const plan_region regions[REGIONS])
{
    for (uint32_t i = first; i < list->count; i++) {
        gp_device_operands *const at = &list->step[i].at;

        for (int k = 0; k < GP_KERNEL_IMAGES; k++)
            list->step[i].args.x[k].data = gp_region_address(regions, list->step[i].args.x[k].data);
        for (int k = 0; k < 2; k++) {
            list->step[i].args.y[k].data = gp_region_address(regions, list->step[i].args.y[k].data);
            list->step[i].args.d[k] = gp_region_address(regions, list->step[i].args.d[k]);
        }
        for (int k = 0; k < GP_KERNEL_FLOATS; k++)
            list->step[i].args.f[k] = gp_region_address(regions, list->step[i].args.f[k]);
        list->step[i].args.bytes = gp_region_address(regions, list->step[i].args.bytes);
        *at = (gp_device_operands){ .first = gp_region_address(regions, at->first),
                                    .second = gp_region_address(regions, at->second),
                                    .out = gp_region_address(regions, at->out),
                                    .vector = gp_region_address(regions, at->vector),
                                    .image = gp_region_address(regions, at->image),
                                    .mask = gp_region_address(regions, at->mask),
                                    .sums = gp_region_address(regions, at->sums) };
        list->step[i].sums = gp_region_address(regions, list->step[i].sums);
    }
}

gp_status gp_stretches_cut(stretch_table *table, const step_list *prepare, const step_list *steps,
                           uint32_t forward_count, gp_error *err)
{
    table->preparation = (stretch){ .list = prepare, .count = prepare->count, .forward = true };
    for (uint32_t i = 0; i < steps->count; i++) {
        stretch *last = table->count == 0 ? NULL : &table->stretch[table->count - 1];
        const bool forward = steps->step[i].op < forward_count,
                   behind_loss = last != NULL && gp_stretch_is_loss(last);

        if (last != NULL && last->forward == forward && !behind_loss &&
            steps->step[i].kind != STEP_CUSTOM_LOSS) {
            last->count++;
            continue;
        }
        if (table->count == STRETCHES_MAX)
            return gp_fail(err, GP_ELIMIT,
                           "a plan for GPU workers supports at most %d stretches between custom losses",
                           STRETCHES_MAX);
        table->stretch[table->count++] =
            (stretch){ .list = steps,
                       .first = i,
                       .count = 1,
                       .forward = forward,
                       .after_loss = behind_loss || (last != NULL && last->after_loss) };
    }
    return GP_OK;
}

void gp_stretches_free(stretch_table *table)
{
    for (uint32_t i = 0; i < table->count; i++)
        gp_device_graph_free(table->stretch[i].graph);
    gp_device_graph_free(table->preparation.graph);
}
