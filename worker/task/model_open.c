/* model_open.c -- build and free a model: all allocations and checks. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/data/store/class_match.h"
#include "common/model/graph/normalization.h"
#include "common/model/graph/custom.h"
#include "worker/backend/missing_plans.h"
#include "worker/task/model_state.h"

enum {
    MICRO_BATCH_MAX = 1 << 20,
    TARGET_BYTES_MAX = 1 << 28,
    OPTION_TEXT_MAX = 256,
    LIST_BYTES = 80, /* class names in an error message */
};

/* ---- options ---- */

/* Training options that apply to custom loops. */
static const char *const options_used[] = { "solver",
                                            "momentum",
                                            "gradient-decay-factor",
                                            "squared-gradient-decay-factor",
                                            "epsilon",
                                            "l2-regularization",
                                            "gradient-threshold",
                                            "gradient-threshold-method",
                                            "seed",
                                            "weights-initializer",
                                            "synchronize-batch-norm",
                                            NULL };

static gp_status option_set(gp_train_options *options, char *text, gp_error *err)
{
    char *value = strchr(text, '=');
    const gp_param *param;

    if (value == NULL)
        return gp_fail(err, GP_EINVAL, "option \"%s\" has no value; must be name=value;name=value", text);
    *value++ = '\0';
    param = gp_params_find(gp_train_options_table, text);
    if (param == NULL)
        return gp_params_unknown(gp_train_options_table, text, err);
    for (const char *const *used = options_used; *used != NULL; used++)
        if (strcmp(*used, param->name) == 0)
            return gp_params_set(param, options, value, err);
    return gp_fail(err, GP_EINVAL, "option %s has no effect on a model; implement it in the loop",
                   param->name);
}

static gp_status options_read(gp_train_options *options, const char *text, gp_error *err)
{
    gp_status status = GP_OK;

    gp_params_default(gp_train_options_table, options);
    while (text != NULL && *text != '\0' && status == GP_OK) {
        char one[OPTION_TEXT_MAX];
        size_t length = strcspn(text, ";");

        if (length >= sizeof(one))
            return gp_fail(err, GP_ELIMIT, "option \"%.40s...\" has more than %zu bytes", text,
                           sizeof(one) - 1);
        memcpy(one, text, length);
        one[length] = '\0';
        text += length + (text[length] == ';');
        if (length != 0)
            status = option_set(options, one, err);
    }
    gp_train_options_resolve(options);
    return status;
}

/* ---- network ---- */

static gp_status network_read(gp_model *model, const gp_model_options *options, gp_error *err)
{
    const gp_store_info *data = options->data == NULL ? NULL : gp_store_get_info(options->data->store);
    gp_shape input = data != NULL ? gp_shape3(data->channels, data->height, data->width)
                                  : gp_shape3(options->channels, options->height, options->width);
    uint32_t classes = data != NULL ? data->class_count : options->classes;
    bool custom_input = input.dim[0] == 0;

    if ((options->network == NULL) == (options->content == NULL))
        return gp_fail(err, GP_EINVAL, "a model needs either a network or the content of a model file");
    if (data != NULL && (options->channels | options->height | options->width | options->classes) != 0)
        return gp_fail(err, GP_EINVAL,
                       "the data determine the sample shape; leave channels, height, width and classes at 0");
    if (options->content != NULL)
        return gp_network_read(&model->network, options->content, options->content_bytes, err);
    if (options->network[strspn(options->network, " \n\t")] == '{')
        return gp_network_read(&model->network, options->network, strlen(options->network), err);
    if (gp_network_is_file(options->network) || !custom_input)
        return gp_network_load(&model->network, options->network, &input, classes, err);
    gp_status status = gp_zoo_check(options->network, err);

    return status == GP_OK ? gp_zoo_build(&model->network.spec, options->network, NULL, classes, err)
                           : status;
}

static gp_status graph_with_loss(gp_graph **out, const gp_netspec *given, bool parallel, gp_error *err)
{
    gp_netspec *spec;
    gp_status status = gp_netspec_copy(&spec, given, err);

    if (status != GP_OK)
        return status;
    status = gp_custom_loss_end(spec, parallel, err);
    if (status == GP_OK)
        status = gp_graph_new(out, spec, err);
    if (status == GP_OK && (*out)->end_count != 1)
        status = gp_fail(err, GP_EUNSUPPORTED,
                         "network %s has %" PRIu32 " losses; a custom loss can replace only a single one",
                         spec->name, (*out)->end_count);
    gp_netspec_free(spec);
    return status;
}

/* Take the class names of the data if the network has none. */
static gp_status classes_take(gp_network *network, const gp_store_info *info, gp_error *err)
{
    network->class_names = gp_calloc(info->class_count, sizeof(*network->class_names));
    for (uint32_t i = 0; network->class_names != NULL && i < info->class_count; i++) {
        network->class_names[i] = gp_strdup(info->class_names[i]);
        network->class_count++;
        if (network->class_names[i] == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for the name of a class");
    }
    return network->class_names == NULL
               ? gp_fail(err, GP_ENOMEM, "no memory for the names of %" PRIu32 " classes", info->class_count)
               : GP_OK;
}

/* Check that label k of the data belongs to output k of the network, because gp_data does not
 * renumber labels. Different names match only if one side has the numbers 0, 1, 2 ... as names. The
 * counts differ only with a custom loss, whose labels need not be outputs. */
static gp_status classes_check(const gp_network *network, const gp_store_info *info, gp_error *err)
{
    const char *const *names = (const char *const *)network->class_names;
    const uint32_t count = info->class_count;
    char data_list[LIST_BYTES], network_list[LIST_BYTES];
    uint32_t first = 0; /* first class whose names differ */

    if (network->class_count != count)
        return GP_OK;
    while (first < count && strcmp(info->class_names[first], names[first]) == 0)
        first++;
    if (first == count)
        return GP_OK;
    int32_t *numbers = gp_calloc(count, sizeof(*numbers));

    if (numbers == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %" PRIu32 " classes", count);
    const bool by_number = gp_class_match(numbers, NULL, info, NULL, names, count, NULL) == GP_OK &&
                           numbers[first] == (int32_t)first;

    gp_free(numbers);
    return by_number
               ? GP_OK
               : gp_fail(
                     err, GP_EINVAL,
                     "class %" PRIu32 " of %.80s is \"%.30s\", but class %" PRIu32
                     " of network %.30s is \"%.30s\" (data: %s; network: %s); use data with the same "
                     "classes in the same order, or rename those of the network (gradpool model edit "
                     "--class-names)",
                     first + 1, info->source, info->class_names[first], first + 1, network->spec->name,
                     names[first],
                     gp_class_names_format(data_list, sizeof(data_list), info->class_names, count, NULL, 0),
                     gp_class_names_format(network_list, sizeof(network_list), names, count, NULL, 0));
}

static gp_status classes_match(gp_network *network, const gp_data *data, gp_error *err)
{
    const gp_store_info *info = data == NULL ? NULL : gp_store_get_info(data->store);

    if (info == NULL || info->class_count == 0)
        return GP_OK;
    return network->class_names == NULL ? classes_take(network, info, err)
                                        : classes_check(network, info, err);
}

/* ---- memory ---- */

static gp_status sizes_choose(gp_model *model, const gp_model_options *options, gp_error *err)
{
    const gp_data *data = options->data;

    model->dtype = data != NULL ? gp_store_get_info(data->store)->dtype : options->bytes ? GP_U8 : GP_F32;
    model->sample_bytes = (size_t)gp_shape_count(&model->graph->spec->input) * gp_dtype_bytes(model->dtype);
    model->target_bytes = data != NULL                   ? gp_store_get_info(data->store)->target_bytes
                          : model->loss.function == NULL ? model->graph->target_bytes
                                                         : sizeof(int32_t);
    if (options->target_bytes != 0)
        model->target_bytes = options->target_bytes;
    model->loss.target_bytes = model->target_bytes;
    model->loss.outputs = gp_model_outputs(model);
    model->micro_batch = options->micro_batch;
    if (model->micro_batch == 0 && data != NULL)
        model->micro_batch = data->share_max != 0 ? data->share_max : data->read_max;
    if (model->micro_batch == 0 || model->micro_batch > MICRO_BATCH_MAX ||
        model->target_bytes > TARGET_BYTES_MAX)
        return gp_fail(err, GP_EINVAL,
                       "invalid micro_batch %" PRIu32 " or target_bytes %zu: without data, micro_batch must "
                       "be between 1 and %d, and target_bytes at most %d",
                       model->micro_batch, model->target_bytes, MICRO_BATCH_MAX, TARGET_BYTES_MAX);
    if (options->target_bytes != 0 && model->loss.function == NULL)
        return gp_fail(err, GP_EINVAL,
                       "target_bytes needs a custom loss; the loss of the network determines it otherwise");
    return GP_OK;
}

static gp_status plans_compile(gp_model *model, bool train_only, gp_error *err)
{
    gp_plan_memory memory = { .parameters = model->parameters,
                              .gradients = model->gradients,
                              .sums = model->sums,
                              .loss = model->loss.function == NULL ? NULL : gp_custom_loss_call,
                              .loss_context = &model->loss };
    gp_plan_options options = { .phase = GP_PHASE_TRAIN,
                                .micro_batch = model->micro_batch,
                                .sample_dtype = model->dtype };
    gp_status status =
        model->backend_ops->compile(&model->plan, model->backend, model->graph, &options, &memory, err);

    if (status != GP_OK || train_only)
        return status;
    model->scores =
        gp_aligned_calloc(64, (size_t)model->micro_batch * gp_model_outputs(model) * sizeof(float));
    if (model->scores == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the scores of %" PRIu32 " samples", model->micro_batch);
    options.phase = GP_PHASE_INFER;
    memory.gradients = NULL;
    memory.sums = model->inference_sums;
    memory.scores = model->scores;
    return model->backend_ops->compile(&model->inference, model->backend, model->graph, &options, &memory,
                                       err);
}

/* ---- open and close ---- */

static void model_free(gp_owned *owned)
{
    gp_model *model = (gp_model *)(void *)owned;

    if (model->plan != NULL)
        model->backend_ops->free(model->plan);
    if (model->inference != NULL)
        model->backend_ops->free(model->inference);
    gp_optim_free(model->optim);
    gp_free(model->scores);
    gp_model_give_back_memory(model);
    gp_graph_free(model->graph);
    gp_network_deinit(&model->network);
    gp_buffer_deinit(&model->onnx);
    gp_custom_loss_deinit(&model->loss);
    gp_free(model);
}

void gp_model_close(gp_model *model)
{
    if (model == NULL)
        return;
    gp_owned_leave(&model->owned);
    model_free(&model->owned);
}

static gp_status model_build(gp_model *model, gp_task *task, const gp_model_options *options, gp_error *err)
{
    const gp_tasks_host *host = &task->tasks->host;
    const gp_store_info *data = options->data == NULL ? NULL : gp_store_get_info(options->data->store);
    gp_init_rule rule;
    char missing[GP_MISSING_PLANS_BYTES];
    gp_status status = host->backend(host->context, &model->backend_ops, &model->backend, err);

    if (status == GP_OK)
        status = options_read(&model->options, options->options, err);
    if (status == GP_OK)
        status = network_read(model, options, err);
    if (status == GP_OK)
        status = model->loss.function == NULL
                     ? gp_graph_new(&model->graph, model->network.spec, err)
                     : graph_with_loss(&model->graph, model->network.spec, model->loss.parallel, err);
    /* The network must accept the data's samples and targets. */
    if (status == GP_OK && data != NULL) {
        gp_shape sample = gp_shape3(data->channels, data->height, data->width);

        status = gp_netspec_check_samples(model->graph->spec, &sample, data->dtype, data->source, err);
        if (status == GP_OK && model->loss.function == NULL)
            status =
                gp_graph_check_targets(model->graph, data->targets, data->target_count, data->source, err);
    }
    if (status == GP_OK)
        status = classes_match(&model->network, options->data, err);
    if (status == GP_OK)
        status = sizes_choose(model, options, err);
    if (status == GP_OK)
        status = gp_model_choose_ranges(model, err);
    if (status == GP_OK)
        status = gp_model_take_memory(model, task, options->keep, err);
    if (status == GP_OK)
        status = gp_model_couple(model, err);
    if (status == GP_OK)
        status = gp_init_rule_parse(&rule, model->options.weights_initializer, err);
    if (status == GP_OK && model->network.weights != NULL) {
        memcpy(model->parameters, model->network.weights, model->graph->blob_count * sizeof(float));
        gp_network_set_weights(&model->network, NULL, 0);
    } else if (status == GP_OK) {
        gp_graph_initialize(model->graph, rule, (uint64_t)model->options.seed, model->parameters);
    }
    if (status == GP_OK)
        status = gp_optim_new(&model->optim, model->graph, &model->options, err);
    if (status == GP_OK)
        status = plans_compile(model, options->train_only, err);
    if (status == GP_OK && gp_missing_plans_format(model->backend_ops, model->plan, missing))
        gp_task_log(task, "%s", missing);
    return status;
}

gp_status gp_model_open(gp_model **out, gp_task *task, const gp_model_options *options, gp_error *err)
{
    gp_model *model = gp_calloc(1, sizeof(*model));

    if (model == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a model");
    model->owned.close = model_free;
    model->tasks = task->tasks;
    gp_custom_loss_init(&model->loss, options->loss, options->loss_context, options->loss_parallel);
    model->fresh = true;
    gp_buffer_init(&model->onnx, INT32_MAX);
    gp_status status = model_build(model, task, options, err);

    if (status != GP_OK) {
        model_free(&model->owned);
        return status;
    }
    if (!options->keep)
        gp_task_own(task, &model->owned);
    *out = model;
    return GP_OK;
}
