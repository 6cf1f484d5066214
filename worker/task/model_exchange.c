/* model_exchange.c -- exchange of gradients and parameters between the ranks of a block.
 *
 * In a block, parameters, gradients and sums are in the arena of the group, which the other ranks
 * map, so they are reduced in place. A model that outlives its task has private memory, and the
 * exchange copies data. */
#include <inttypes.h>

#include "common/base/memory/alloc.h"
#include "worker/backend/cpu/base/threads.h"
#include "worker/task/model_state.h"

enum { LINE = 64 };

/* ---- memory ---- */

gp_status gp_model_take_memory(gp_model *model, gp_task *task, bool keep, gp_error *err)
{
    const size_t sums_bytes = MODEL_SUMS * sizeof(double);
    const size_t blob_bytes = model->graph->blob_count * sizeof(float);
    const size_t sums_room = (sums_bytes + LINE - 1) / LINE * LINE;
    const size_t blob_room = (blob_bytes + LINE - 1) / LINE * LINE;
    gp_task_group *group = keep ? NULL : task->group;
    void *memory;
    gp_status status;

    if (group != NULL) {
        /* one allocation: a failure leaves nothing allocated, as the arena cannot free a part */
        status = gp_comm_arena_alloc(group->comm, sums_room + 2 * blob_room, &memory, err);
        if (status != GP_OK)
            return status;
        model->sums = memory;
        model->gradients = (float *)(void *)((unsigned char *)memory + sums_room);
        model->parameters = (float *)(void *)((unsigned char *)memory + sums_room + blob_room);
        model->group = group;
        group->models++;
        return GP_OK;
    }
    model->sums = gp_aligned_calloc(LINE, sums_bytes);
    model->gradients = gp_aligned_calloc(LINE, blob_bytes);
    model->parameters = gp_aligned_calloc(LINE, blob_bytes);
    if (model->sums == NULL || model->gradients == NULL || model->parameters == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu parameters and their gradients",
                       model->graph->blob_count);
    return GP_OK;
}

static gp_status coupling_reduce(void *context, size_t count, gp_error *err)
{
    gp_model *model = context;

    return gp_comm_all_reduce_private(model->group->comm, model->coupling.sums, count, GP_F64, GP_COMM_SUM,
                                      err);
}

gp_status gp_model_couple(gp_model *model, gp_error *err)
{
    int64_t widest = 0;

    for (uint32_t p = 0; p < model->graph->parameter_count; p++) {
        const gp_parameter *parameter = &model->graph->parameters[p];

        if (parameter->statistic != GP_STATISTIC_NONE && parameter->count > widest)
            widest = parameter->count;
    }
    if (!model->options.synchronize_batch_norm)
        return GP_OK;
    if (widest == 0)
        return gp_fail(err, GP_EINVAL, "network %s has no batch norm; omit synchronize-batch-norm",
                       model->graph->spec->name);
    if (model->group == NULL)
        return gp_fail(err, GP_ESTATE,
                       "synchronize-batch-norm needs an spmd block and a model that is opened in it");
    model->coupling = (gp_coupling){ .sums = gp_calloc(2 * (size_t)widest + 1, sizeof(double)),
                                     .reduce = coupling_reduce,
                                     .context = model };
    return model->coupling.sums == NULL ? gp_fail(err, GP_ENOMEM, "no memory for moments") : GP_OK;
}

/* Choose the ranges to exchange: all tensors except frozen ones, with adjacent tensors merged. */
gp_status gp_model_choose_ranges(gp_model *model, gp_error *err)
{
    const gp_graph *graph = model->graph;
    size_t end = 0;

    model->ranges = gp_calloc(graph->parameter_count + 1, sizeof(*model->ranges));
    if (model->ranges == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the exchange of %" PRIu32 " tensors",
                       graph->parameter_count);
    while (end < graph->blob_count)
        for (uint32_t p = 0; p < graph->parameter_count; p++) { /* in blob order */
            const gp_parameter *parameter = &graph->parameters[p];
            struct gp_model_range *last = &model->ranges[model->range_count - (model->range_count > 0)];

            if (parameter->offset != end)
                continue;
            end += (size_t)parameter->count;
            if (!gp_parameter_learns(parameter) && parameter->statistic == GP_STATISTIC_NONE)
                continue;
            if (model->range_count > 0 && last->first + last->count == parameter->offset)
                last->count += (size_t)parameter->count;
            else
                model->ranges[model->range_count++] =
                    (struct gp_model_range){ parameter->offset, (size_t)parameter->count };
        }
    return GP_OK;
}

void gp_model_give_back_memory(gp_model *model)
{
    gp_free(model->ranges);
    gp_free(model->coupling.sums);
    if (model->group == NULL) {
        gp_free(model->sums);
        gp_free(model->gradients);
        gp_free(model->parameters);
    } else if (--model->group->models == 0) {
        gp_comm_arena_reset(model->group->comm);
    }
}

/* ---- exchange ---- */

static gp_status group_of(const gp_model *model, const gp_task *task, gp_comm **out, gp_error *err)
{
    if (task->group == NULL)
        return gp_fail(err, GP_ESTATE,
                       "this task is not a rank of an spmd block; it has no peers for a gradient exchange");
    if (model->loss.forward.count != 0)
        return gp_fail(err, GP_ESTATE,
                       "gp_model_forward called before gp_model_backward of the previous pass");
    *out = task->group->comm;
    return GP_OK;
}

static gp_status outcome(gp_task *task, gp_status status)
{
    if (status != GP_OK && status != GP_EINVAL && status != GP_ENOMEM)
        task->group->broken = true;
    return status;
}

/* Sum values over the ranks. Values in the group's arena are summed in place. */
static gp_status reduce(const gp_model *model, gp_comm *comm, void *values, size_t count, gp_dtype dtype,
                        gp_error *err)
{
    return model->group != NULL ? gp_comm_all_reduce(comm, values, count, dtype, GP_COMM_SUM, err)
                                : gp_comm_all_reduce_private(comm, values, count, dtype, GP_COMM_SUM, err);
}

static gp_status reduce_gradients(gp_model *model, gp_comm *comm, gp_error *err)
{
    gp_status status = GP_OK;

    for (uint32_t i = 0; i < model->range_count && status == GP_OK; i++)
        status = reduce(model, comm, model->gradients + model->ranges[i].first, model->ranges[i].count,
                        GP_F32, err);
    return status;
}

static gp_status collected_check(const gp_model *model, gp_error *err)
{
    if (!model->fresh)
        return GP_OK;
    return gp_fail(err, GP_ESTATE,
                   "step %" PRIu64
                   " has no gradients; a rank without samples must compute a batch of 0 samples",
                   model->step + 1);
}

gp_status gp_model_all_reduce(gp_model *model, gp_task *task, gp_error *err)
{
    gp_comm *comm = NULL;
    gp_status status = group_of(model, task, &comm, err);

    if (status == GP_OK)
        status = collected_check(model, err);
    if (status != GP_OK)
        return status;
    gp_threads_resume();
    status = reduce_gradients(model, comm, err);
    if (status == GP_OK)
        status = reduce(model, comm, model->sums, MODEL_SUMS, GP_F64, err);
    gp_threads_restore();
    return outcome(task, status);
}

gp_status gp_model_reduce_scatter(gp_model *model, gp_task *task, gp_error *err)
{
    gp_comm *comm = NULL;
    gp_status status = group_of(model, task, &comm, err);

    if (status == GP_OK)
        status = collected_check(model, err);
    if (status == GP_OK && model->graph->learned_count != model->graph->blob_count)
        status = gp_fail(
            err, GP_EUNSUPPORTED,
            "network %s has running statistics (batch norm), which all ranks need; use gp_model_all_reduce",
            model->graph->spec->name);
    if (status != GP_OK)
        return status;
    gp_threads_resume();
    status = model->group != NULL ? gp_comm_reduce_scatter(comm, model->gradients, model->graph->blob_count,
                                                           GP_F32, GP_COMM_SUM, err)
                                  : reduce_gradients(model, comm, err);
    if (status == GP_OK)
        status = reduce(model, comm, model->sums, MODEL_SUMS, GP_F64, err);
    gp_threads_restore();
    return outcome(task, status);
}

gp_status gp_model_all_gather(gp_model *model, gp_task *task, gp_error *err)
{
    size_t count = model->graph->blob_count, parts[GP_COMM_WORLD_MAX + 1] = { 0 }, first;
    gp_comm *comm = NULL;
    gp_status status = group_of(model, task, &comm, err);

    if (status != GP_OK)
        return status;
    if (model->group != NULL) {
        status = gp_comm_all_gather(comm, model->parameters, count, GP_F32, err);
    } else {
        for (uint32_t k = 0; k < task->group->world; k++) {
            gp_comm_slice(comm, count, GP_F32, k, &first, &parts[k + 1]);
            parts[k + 1] *= sizeof(float);
        }
        status = gp_comm_gather_private(comm, model->parameters, parts, err);
    }
    model->fresh = true; /* the collected gradients belong to other parameters */
    return outcome(task, status);
}

gp_status gp_model_slice(const gp_model *model, const gp_task *task, uint32_t index, size_t *first,
                         size_t *count, gp_error *err)
{
    size_t end;

    if (task->group == NULL || index < 1 || index > task->group->world)
        return gp_fail(err, task->group == NULL ? GP_ESTATE : GP_EINVAL,
                       "index %" PRIu32 " is not in the block of %" PRIu32, index,
                       task->group == NULL ? 0 : task->group->world);
    gp_comm_slice(task->group->comm, model->graph->blob_count, GP_F32, index - 1, first, &end);
    *count = end - *first;
    return GP_OK;
}

gp_status gp_model_broadcast(gp_model *model, gp_task *task, uint32_t root, gp_error *err)
{
    size_t bytes = model->graph->blob_count * sizeof(float);
    gp_comm *comm = NULL;
    gp_status status = group_of(model, task, &comm, err);

    if (status != GP_OK)
        return status;
    if (root < 1 || root > task->group->world)
        return gp_fail(err, GP_EINVAL,
                       "cannot broadcast from index %" PRIu32 ": must be between 1 and %" PRIu32, root,
                       task->group->world);
    status = gp_comm_broadcast(comm, model->parameters, bytes, root - 1, err);
    model->fresh = true;
    return outcome(task, status);
}
