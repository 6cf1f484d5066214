/* Sequences of steps that run without the host. */
#include "worker/backend/cuda/plan/stretch.h"

gp_status gp_stretches_cut(stretch_table *table, const step_list *prepare, const step_list *steps,
                           uint32_t forward_count, gp_error *err)
{
    table->preparation = (stretch){ .list = prepare, .count = prepare->count, .forward = true };
    for (uint32_t i = 0; i < steps->count; i++) {
        stretch *last = table->count == 0 ? NULL : &table->stretch[table->count - 1];
        const bool forward = steps->step[i].op < forward_count,
                   behind_loss = last != NULL && gp_stretch_is_loss(last);

        if (last != NULL && last->forward == forward && !behind_loss &&
            steps->step[i].kind != STEP_OWN_LOSS) {
            last->count++;
            continue;
        }
        if (table->count == STRETCHES_MAX)
            return gp_fail(err, GP_ELIMIT, "a GPU's plan has at most %d stretches between losses of your own",
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
