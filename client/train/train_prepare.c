/* train_prepare.c: prepare options, network and data of a training, and check them before waiting
 * for workers. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/train/train_run.h"
#include "client/train/transfer.h"
#include "common/base/memory/alloc.h"
#include "common/data/store/class_match.h"
#include "common/model/graph/normalization.h"

/* Make a path absolute, because workers have another current directory. */
static gp_status path_absolute(char *path, size_t bytes, gp_error *err)
{
    char current[512], whole[1100];

    if (path[0] == '\0' || path[0] == '/')
        return GP_OK;
    if (getcwd(current, sizeof(current)) == NULL)
        return gp_fail_errno(err, GP_EIO, "cannot determine the current directory");
    if ((size_t)snprintf(whole, sizeof(whole), "%s/%s", current, path) >= bytes)
        return gp_fail(err, GP_ELIMIT, "the path %s is longer than %zu bytes", whole, bytes - 1);
    strcpy(path, whole);
    return GP_OK;
}

/* Return whether the network is known before the data. Otherwise it is built for the data. */
static bool run_has_network(const gp_run *run)
{
    return run->request->pretrained != NULL || gp_network_is_file(run->request->network);
}

gp_status gp_run_open_data(gp_run *run, gp_store **store, const char *source, gp_data_role role,
                           const gp_store_info *classes, gp_error *err)
{
    const gp_netspec *spec = run->training->network.spec;
    gp_store_options images;
    gp_status status = /* a network file fixes the input shape: images are resized to it */
        gp_augment_images(&images, &run->augment, run->options.image_size, spec != NULL ? &spec->input : NULL,
                          err);

    if (spec != NULL && spec->resized)
        memset(images.exact, 0, sizeof(images.exact));
    images.class_names = classes == NULL ? NULL : classes->class_names;
    images.class_count = classes == NULL ? 0 : classes->class_count;
    images.on_error = (gp_on_error)run->options.on_error;
    images.cache_bytes = gp_store_cache_bytes(run->options.image_cache);
    images.progress = run->request->data_progress;
    return status == GP_OK ? gp_store_open_with(store, source, role, &images, err) : status;
}

/* Fill in the data sources for the workers, with absolute paths; "=" stands for the test part of
 * the training source. Open the test part, which is smaller than the training part and has the same
 * shape. Without a test part, open the training part.
 *   is_test  set to whether *store is the test part */
static gp_status run_find_data(gp_run *run, gp_store **store, bool *is_test, gp_error *err)
{
    const char *validation = run->request->validation_data;
    gp_status status = gp_source_absolute(run->message.fields.data, sizeof(run->message.fields.data),
                                          run->request->data, err);

    if (status == GP_OK && validation != NULL && strcmp(validation, "none") != 0)
        status = gp_source_absolute(run->message.fields.validation_data,
                                    sizeof(run->message.fields.validation_data), validation, err);
    if (status != GP_OK)
        return status;
    status = gp_run_open_data(run, store, run->message.fields.data, GP_DATA_TEST, NULL, err);
    *is_test = status == GP_OK;
    if (status == GP_OK && validation == NULL)
        strcpy(run->message.fields.validation_data, "=");
    else if (status == GP_ENOENT)
        status = gp_run_open_data(run, store, run->message.fields.data, GP_DATA_TRAIN, NULL, err);
    return status;
}

/* Match the classes of the training data with those of a network that keeps its classifier. If the
 * order differs, send the class names to the workers. */
static gp_status run_match_classes(gp_run *run, const gp_store_info *info, gp_error *err)
{
    const gp_network *network = &run->training->network;
    const char *const *names = (const char *const *)network->class_names;
    const uint32_t count = run->training->graph->class_count;
    const gp_train_events *events = &run->request->events;
    char list[200], text[300];
    bool by_number, moved = false;

    if (info->class_count == 0 || count == 0)
        return GP_OK;
    int32_t *numbers = gp_calloc(info->class_count, sizeof(*numbers));

    if (numbers == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %" PRIu32 " classes", info->class_count);
    gp_status status = gp_class_match(numbers, &by_number, info, NULL, names, count, err);

    for (uint32_t i = 0; i < info->class_count; i++)
        moved = moved || numbers[i] != (int32_t)i;
    gp_free(numbers);
    if (status != GP_OK)
        return status;
    if (by_number && events->note != NULL) {
        gp_class_names_format(list, sizeof(list), info->class_names, info->class_count, NULL, 0);
        snprintf(
            text, sizeof(text),
            "the network's outputs have no names; they are matched with the classes of the data in order: %s",
            list);
        events->note(events->context, text);
    }
    return moved ? gp_network_classes_write(network, count, &run->message.classes, err) : GP_OK;
}

/* Build the network to train, and check that it accepts the data. */
static gp_status run_fit(gp_run *run, const gp_store_info *info, gp_error *err)
{
    const gp_train_request *request = run->request;
    gp_network *network = &run->training->network;
    gp_shape sample = gp_shape3(info->channels, info->height, info->width);
    gp_transfer how = { .classes = request->pretrained != NULL ? request->classes : NULL,
                        .source = info->source,
                        .data_classes = info->class_count,
                        .data_names = info->class_names,
                        .head_factors = { request->head_learn_rate_factor[0],
                                          request->head_learn_rate_factor[1] },
                        .freeze_up_to = request->freeze_up_to,
                        .seed = (uint64_t)run->options.seed };
    gp_edited edited = { 0 };
    const bool keeps_head = run_has_network(run) && gp_transfer_keeps_head(network, &how);
    gp_status status = gp_init_rule_parse(&how.rule, run->options.weights_initializer, err);

    if (status == GP_OK && !run_has_network(run))
        status = gp_network_load(network, request->network, &sample, info->class_count, err);
    if (status == GP_OK)
        status = gp_normalization_apply(network->spec, request->image_normalization, network->weights != NULL,
                                        err);
    if (status == GP_OK && request->pretrained != NULL)
        status = gp_network_transfer(network, &how, &edited, err);
    for (uint32_t i = 0; status == GP_OK && i < edited.change_count && request->events.change != NULL; i++) {
        char output[64];
        gp_layer_change change = gp_transfer_change(&edited.changes[i], output);

        request->events.change(request->events.context, &change);
    }
    gp_edited_deinit(&edited);
    const gp_store_info kept = { .class_names = (const char *const *)network->class_names,
                                 .class_count = network->class_names != NULL ? network->class_count
                                                                             : info->class_count };

    if (status == GP_OK)
        status = gp_run_weigh_classes(run, keeps_head ? &kept : NULL, err);
    if (status == GP_OK)
        status = gp_graph_new(&run->training->graph, network->spec, err);
    if (status == GP_EINVAL && !run_has_network(run)) {
        /* Add the recommended image size to the error message, if a network of the zoo is too deep
         * for such small images. */
        const char *name = run->request->network;
        const size_t length = strcspn(name, ":");
        char text[GP_ERROR_MESSAGE_MAX];
        gp_zoo_info zoo;

        for (size_t i = 0; err != NULL && info->decodes && gp_zoo_describe(i, &zoo); i++) {
            if (strlen(zoo.name) != length || strncmp(zoo.name, name, length) != 0 ||
                (info->height >= zoo.input.dim[1] && info->width >= zoo.input.dim[2]))
                continue;
            snprintf(text, sizeof(text), "%s", err->message);
            gp_fail(err, err->code,
                    "%.200s; %s is designed for images of %" PRId64 "x%" PRId64 "; give --image-size %" PRId64
                    ",%" PRId64,
                    text, zoo.name, zoo.input.dim[1], zoo.input.dim[2], zoo.input.dim[1], zoo.input.dim[2]);
        }
    }
    if (status == GP_OK)
        status = gp_network_check_data(run->training->graph, info, err);
    return status == GP_OK && keeps_head ? run_match_classes(run, info, err) : status;
}

/* Reject data without any target: every metric would be empty.
 *   use    "trained" or "validated"
 *   other  alternative to labelled data for the error message; "": none */
static gp_status run_check_labels(const gp_store *store, const char *use, const char *other, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(store);

    if (gp_store_has_targets(store))
        return GP_OK;
    return gp_fail(err, GP_EINVAL,
                   "nothing can be %s: none of the %" PRIu32
                   " samples of %.120s has a label; give labelled data (class folders, label images, "
                   "FILE.csv or y.npy)%s",
                   use, info->count, info->source, other);
}

/* Check that the training data has labels and fills a mini-batch, and count the missing labels.
 *
 * If the source has a test part, the training part is opened only for local arrays: these open
 * quickly, and their labels can be missing. Class folders, IDX files and archives have a label for
 * every sample. The workers check the size of a part that is not opened here.
 *   scaled   the training options for one worker
 *   data     the test part of the training source, or else its training part
 *   is_test  `data` is the test part */
static gp_status run_check_training(gp_run *run, const gp_train_options *scaled, const gp_store *data,
                                    bool is_test, gp_error *err)
{
    gp_store *opened = NULL;
    gp_status status = GP_OK;

    if (is_test) {
        if (strcmp(gp_store_get_info(data)->kind, "npy") != 0 ||
            strncmp(run->message.fields.data, "s3://", strlen("s3://")) == 0)
            return GP_OK;
        status = gp_run_open_data(run, &opened, run->message.fields.data, GP_DATA_TRAIN, NULL, err);
        data = opened;
    }
    if (status == GP_OK)
        status = run_check_labels(data, "trained", "", err);
    if (status == GP_OK)
        status = gp_train_options_check_samples(scaled, gp_store_get_info(data)->count,
                                                gp_store_get_info(data)->source, err);
    if (status == GP_OK)
        status = gp_store_count_missing(data, &run->training->summary.training_excluded, err);
    gp_store_close(opened);
    return status;
}

/* Check the validation data: labels, and for a separate source also shape, targets and class names.
 *   data  the test part of the training source, or else its training part */
static gp_status run_check_validation(gp_run *run, const gp_store *data, gp_error *err)
{
    const gp_store_info *train = gp_store_get_info(data);
    const char *source = run->message.fields.validation_data;
    gp_store *store;

    if (source[0] == '\0')
        return GP_OK;
    if (strcmp(source, "=") == 0)
        return run_check_labels(data, "validated", ", or --validation-data none", err);
    gp_status status = gp_run_open_data(run, &store, source, GP_DATA_GIVEN, train, err);

    if (status != GP_OK)
        return status;
    gp_augment fixed = gp_augment_fixed(&run->augment, run->options.image_size);
    gp_store_info info;

    status = gp_augment_shape(&info, &fixed, gp_store_get_info(store), err);
    if (status == GP_OK)
        status = gp_network_check_data(run->training->graph, &info, err);
    if (status == GP_OK)
        status = run_check_labels(store, "validated", ", or --validation-data none", err);
    gp_store_close(store);
    return status;
}

gp_status gp_run_prepare(gp_run *run, gp_error *err)
{
    const gp_train_request *request = run->request;
    gp_network *network = &run->training->network;
    gp_store *store = NULL;
    gp_store_info shape;
    bool is_test = false;
    gp_train_options trial;
    gp_init_rule rule;
    gp_status status = gp_train_options_from_words(&run->options, run->request->options, err);

    trial = run->options; /* scale a copy, to report errors before any worker is leased */
    if (status == GP_OK)
        status = gp_train_options_scale(&trial, 1, err);
    if (status == GP_OK)
        status = gp_init_rule_parse(&rule, run->options.weights_initializer, err);
    if (status == GP_OK)
        status = path_absolute(run->options.checkpoint_path, sizeof(run->options.checkpoint_path), err);
    if (status == GP_OK && strcmp(run->options.resume, "auto") != 0)
        status = path_absolute(run->options.resume, sizeof(run->options.resume), err);
    if (status == GP_OK)
        status = gp_augment_parse(&run->augment, run->options.augment, err);
    if (status == GP_OK && request->pretrained != NULL)
        status = gp_network_pretrained(network, request->pretrained, err);
    else if (status == GP_OK)
        status = gp_network_is_file(request->network)
                     ? gp_network_load(network, request->network, NULL, 0, err)
                     : gp_zoo_check(request->network, err);
    if (status == GP_OK)
        status = run_find_data(run, &store, &is_test, err);
    if (status == GP_OK)
        status = gp_augment_shape(&shape, &run->augment, gp_store_get_info(store), err);
    if (status == GP_OK)
        status = run_fit(run, &shape, err);
    if (status == GP_OK)
        status = gp_train_options_check_network(&trial, run->training->graph, err);
    if (status == GP_OK)
        status = run_check_training(run, &trial, store, is_test, err);
    if (status == GP_OK)
        status = run_check_validation(run, store, err);
    gp_store_close(store);
    if (status == GP_OK)
        status = gp_run_choose_checkpoint(run, err);
    run->message.fields.seed = (uint64_t)run->options.seed;
    if (status != GP_OK)
        return status;

    /* Record in the model how images were cropped and resized in training,
     * for later predictions. */
    const gp_augment fixed = gp_augment_fixed(&run->augment, run->options.image_size);
    gp_netspec *spec = network->spec;

    spec->windows = fixed.crop == GP_CROP_CENTER;
    spec->fitted = fixed.crop == GP_CROP_FIT;
    spec->resized = fixed.crop == GP_CROP_NONE && (spec->resized || run->options.image_size[0] != 0);
    for (int i = 0; i < 2; i++)
        spec->window_image[i] = spec->windows ? (uint32_t)run->options.image_size[i] : 0;
    run->report.info.pixels = gp_graph_scores_pixels(run->training->graph);
    return gp_netspec_to_json(spec, &run->message.network, false, err);
}
