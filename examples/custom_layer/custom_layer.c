/* A custom layer kind: swish, y = x / (1 + exp(-beta x)), with a learned beta for each channel
 * (Ramachandran et al., "Searching for activation functions", 2017).
 *
 *   cmake -B build && cmake --build build && gradpool spmd -n 2 build/custom_layer.so:train */
#include <gradpool/train_task.h>
#include <math.h>

static gp_status swish_infer(gp_layer_plan *plan, gp_error *err)
{
    (void)err;
    plan->parameter_count = 1;
    plan->parameters[0] = (gp_layer_parameter){ .role = "beta",
                                                .dims = { 1, { plan->inputs[0].dim[0] } },
                                                .start = GP_LAYER_START_ONES };
    return GP_OK;
}

static gp_status swish_forward(const gp_layer_call *call, gp_error *err)
{
    size_t channels = (size_t)call->inputs[0].dim[0], pixels = call->input_size[0] / channels;

    (void)err;
    for (size_t i = 0; i < call->count * call->input_size[0]; i++) {
        float beta = call->parameters[0][i / pixels % channels];

        call->y[i] = call->x[0][i] / (1.0f + expf(-beta * call->x[0][i]));
    }
    return GP_OK;
}

static gp_status swish_backward(const gp_layer_call *call, gp_error *err)
{
    size_t channels = (size_t)call->inputs[0].dim[0], pixels = call->input_size[0] / channels;

    (void)err;
    for (size_t i = 0; i < call->count * call->input_size[0]; i++) {
        size_t channel = i / pixels % channels;
        float x = call->x[0][i], beta = call->parameters[0][channel], s = 1.0f / (1.0f + expf(-beta * x));

        call->dx[0][i] = call->dy[i] * (s + beta * call->y[i] * (1.0f - s));
        call->gradients[0][channel] += call->dy[i] * x * call->y[i] * (1.0f - s);
    }
    return GP_OK;
}

static const gp_layer_kind swish = {
    .name = "swish", .infer = swish_infer, .forward = swish_forward, .backward = swish_backward
};

static const char network[] =
    "{\"name\": \"swishnet\", \"input\": [1, 28, 28], \"scale\": [0.00392156862745098], \"offset\": [0], "
    "\"layers\": ["
    "{\"name\": \"conv1\", \"kind\": \"conv2d\", \"channels\": 12, \"kernel\": [5, 5], \"stride\": [2, 2]},"
    "{\"name\": \"swish1\", \"kind\": \"swish\"},"
    "{\"name\": \"conv2\", \"kind\": \"conv2d\", \"channels\": 24, \"kernel\": [3, 3], \"stride\": [2, 2]},"
    "{\"name\": \"swish2\", \"kind\": \"swish\"},"
    "{\"name\": \"fc\", \"kind\": \"fc\", \"outputs\": 10},"
    "{\"name\": \"loss\", \"kind\": \"crossentropy\"}]}";

GP_TASK gp_status train(gp_task *task, gp_error *err)
{
    gp_data *data;
    gp_model *model;
    gp_samples batch;
    gp_data_options from = { .source = "digits:4000", .batch = 200, .epochs = 3 };
    gp_model_options options = { .network = network, .options = "solver=adam" };
    gp_status status = gp_layer_kind_add(&swish, err);

    if (status == GP_OK)
        status = gp_data_open(&data, task, &from, err);
    options.data = data;
    if (status == GP_OK)
        status = gp_model_open(&model, task, &options, err);
    while (status == GP_OK && (status = gp_data_next(data, &batch, err)) == GP_OK && !batch.ended) {
        gp_gradient_check check = { .seed = 1 };
        gp_model_tensor beta;

        /* In the first step, check swish_backward() against differences of swish_forward(). */
        if (gp_model_step_count(model) == 0)
            status = gp_model_check_gradients(model, &batch, &check, err);
        if (status == GP_OK && gp_model_step_count(model) == 0 && gp_task_index(task) == 1)
            gp_task_log(task, "gradients are correct; largest error %.1e", check.error);
        if (status == GP_OK)
            status = gp_model_forward_backward(model, &batch, err);
        if (status == GP_OK)
            status = gp_model_all_reduce(model, task, err);
        if (status == GP_OK)
            status = gp_model_optimizer_step(model, 0.003, err);
        if (status == GP_OK && batch.last && gp_task_index(task) == 1) {
            gp_model_sums sums;

            gp_model_get_sums(model, &sums); /* sums over the last step */
            status = gp_model_find_tensor(model, "swish1.beta", &beta, err);
            gp_task_log(task, "epoch %u: loss %.4f, accuracy %.1f %%, first beta %.3f", batch.epoch,
                        sums.loss / sums.weight, 100.0 * sums.correct / sums.weight, beta.parameters[0]);
        }
    }
    return status;
}
