/* Layer kinds and losses defined by users. */
#include <pthread.h>

#include "common/model/graph/custom.h"
#include "worker/backend/cpu/loops/loops_inside.h"

/* A call to a user function, divided into parts for several threads. */
typedef struct custom_run {
    gp_layer_call call; /* all samples */
    const gp_loop_call *loop;
    gp_status (*function)(const gp_layer_call *call, gp_error *err);
    size_t saved_size;
    pthread_mutex_t lock;
    gp_status status; /* error from the first part that failed */
    gp_error error;
} custom_run;

/* Return the element count per sample. 0: the operand is absent. */
static size_t size_of(const gp_loop_operand *operand)
{
    return operand->data == NULL ? 0 : (size_t)gp_shape_count(&operand->shape);
}

/* Fill in the arguments that forward and backward calls share. */
static void run_init(custom_run *run, const gp_loop_call *loop)
{
    const gp_op *op = loop->op;
    gp_layer_call *call = &run->call;

    *run = (custom_run){ .loop = loop, .lock = PTHREAD_MUTEX_INITIALIZER };
    *call = (gp_layer_call){ .count = loop->batch->count,
                             .input_count = op->own->inputs == 0 ? 1 : op->own->inputs,
                             .settings = op->settings,
                             .training = op->number[0] != 0,
                             .seed = loop->batch->seed,
                             .step = loop->batch->step,
                             .position = loop->batch->position,
                             .layer = op->layer };
    for (int k = 0; k < GP_LAYER_KIND_INPUTS; k++) {
        call->x[k] = loop->in[GP_CUSTOM_X + k].data;
        call->input_size[k] = size_of(&loop->in[GP_CUSTOM_X + k]);
        call->inputs[k] = gp_custom_dims(&loop->in[GP_CUSTOM_X + k].shape);
    }
    for (int k = 0; k < GP_LAYER_KIND_PARAMETERS; k++)
        call->parameters[k] = loop->in[GP_CUSTOM_PARAMETERS + k].data;
}

/* Return the address of sample `first`, or NULL for an absent operand. */
static float *rows(float *data, size_t first, size_t size)
{
    return data == NULL ? NULL : data + first * size;
}

/* Call the user function on one thread's samples and record the first error. */
static void own_share(void *context, uint32_t thread, uint32_t threads)
{
    custom_run *run = context;
    loop_range range = loop_range_of(run->call.count, 1, thread, threads);
    gp_layer_call part = run->call;
    gp_error err = { 0 };

    if (range.first == range.end)
        return;
    part.count = (uint32_t)(range.end - range.first);
    part.position += range.first;
    for (int k = 0; k < GP_LAYER_KIND_INPUTS; k++) {
        part.x[k] = part.x[k] == NULL ? NULL : part.x[k] + range.first * part.input_size[k];
        part.dx[k] = rows(part.dx[k], range.first, part.input_size[k]);
    }
    part.y = rows(part.y, range.first, part.output_size);
    part.dy = part.dy == NULL ? NULL : part.dy + range.first * part.output_size;
    part.saved = rows(part.saved, range.first, run->saved_size);
    gp_status status = run->function(&part, &err);

    if (status == GP_OK)
        return;
    pthread_mutex_lock(&run->lock);
    if (run->status == GP_OK) {
        run->status = status;
        run->error = err;
    }
    pthread_mutex_unlock(&run->lock);
}

/* Call the user function, on several threads if `parallel`. Returns the first error, prefixed with
 * the layer kind. */
static gp_status custom_call(custom_run *run, bool parallel, gp_error *err)
{
    size_t elements = run->call.count * run->call.output_size;

    if (parallel)
        gp_threads_run(elements < LOOP_SHARED_MIN ? 1 : run->loop->threads, own_share, run);
    else
        own_share(run, 0, 1);
    if (run->status == GP_OK)
        return GP_OK;
    if (run->error.message[0] == '\0')
        gp_fail(&run->error, run->status, "%s", gp_status_text(run->status));
    if (err != NULL)
        *err = run->error;
    gp_error_prefix(err, "layer kind %s", run->loop->op->own->name);
    return run->status;
}

static gp_status custom_forward_run(const gp_loop_call *loop, gp_error *err)
{
    custom_run run;

    run_init(&run, loop);
    run.function = loop->op->own->forward;
    run.call.y = loop->out[GP_CUSTOM_OUT_Y].data;
    run.call.output = gp_custom_dims(&loop->out[GP_CUSTOM_OUT_Y].shape);
    run.call.output_size = size_of(&loop->out[GP_CUSTOM_OUT_Y]);
    run.call.saved = loop->out[GP_CUSTOM_OUT_SAVED].data;
    run.saved_size = size_of(&loop->out[GP_CUSTOM_OUT_SAVED]);
    gp_status status = custom_call(&run, loop->op->own->parallel, err);

    loop_clear_rest(loop, &loop->out[GP_CUSTOM_OUT_Y]);
    return status;
}

const gp_loop gp_loop_custom = { .run = custom_forward_run, .dense = true };

static gp_status custom_backward_run(const gp_loop_call *loop, gp_error *err)
{
    bool learns = false;
    custom_run run;

    run_init(&run, loop);
    run.function = loop->op->own->backward;
    run.call.y = loop->in[GP_CUSTOM_Y].data;
    run.call.output = gp_custom_dims(&loop->in[GP_CUSTOM_Y].shape);
    run.call.output_size = size_of(&loop->in[GP_CUSTOM_Y]);
    run.call.dy = loop->in[GP_CUSTOM_DY].data;
    run.call.saved = loop->in[GP_CUSTOM_SAVED].data;
    run.saved_size = size_of(&loop->in[GP_CUSTOM_SAVED]);
    for (int k = 0; k < GP_LAYER_KIND_INPUTS; k++)
        run.call.dx[k] = loop->out[GP_CUSTOM_OUT_DX + k].data;
    for (int k = 0; k < GP_LAYER_KIND_PARAMETERS; k++) {
        const gp_loop_operand *gradient = &loop->out[GP_CUSTOM_OUT_GRADIENTS + k];

        run.call.gradients[k] = gradient->data;
        if (gradient->data == NULL)
            continue;
        learns = true;
        if (loop->batch->first)
            memset(gradient->data, 0, size_of(gradient) * sizeof(float));
    }
    gp_status status = custom_call(&run, loop->op->own->parallel && !learns, err);

    for (int k = 0; k < GP_LAYER_KIND_INPUTS; k++)
        loop_clear_rest(loop, &loop->out[GP_CUSTOM_OUT_DX + k]);
    return status;
}

const gp_loop gp_loop_custom_backward = { .run = custom_backward_run, .dense = true };

static gp_status custom_loss_run(const gp_loop_call *call, gp_error *err)
{
    const gp_loop_operand *scores = &call->in[0], *gradient = &call->out[0];
    size_t each = (size_t)gp_shape_count(&scores->shape);

    if (call->op->out[2] != GP_NO_VALUE && call->memory->scores != NULL)
        memcpy(call->memory->scores, scores->data, call->batch->count * each * sizeof(float));
    if (gradient->data == NULL || call->memory->loss == NULL)
        return GP_OK;
    memset(gradient->data, 0, call->rows * each * sizeof(float));
    return call->memory->loss(call->memory->loss_context,
                              &(gp_plan_loss_call){ .count = call->batch->count,
                                                    .scores = scores->data,
                                                    .gradient = gradient->data,
                                                    .sums = call->memory->sums },
                              err);
}

const gp_loop gp_loop_custom_loss = { .run = custom_loss_run, .dense = true, .alone = true };
