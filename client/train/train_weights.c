/* train_weights.c: apply --class-weights: given numbers, or weights computed from the training
 * data. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "client/train/train_run.h"
#include "common/base/memory/alloc.h"
#include "common/base/text/spell.h"
#include "common/data/store/balance.h"

/* Parse --class-weights. *found is set to whether the weights must be computed by *balance; false:
 * numbers, or none. GP_EINVAL: unknown word. */
static gp_status balance_parse(gp_balance *balance, bool *found, const char *text, gp_error *err)
{
    const char *near = "auto";
    unsigned distance = UINT_MAX;

    *found = false;
    *balance = GP_BALANCE_MEDIAN;
    if (strcmp(text, "none") == 0 || text[strspn(text, "0123456789.eE+-, ")] == '\0')
        return GP_OK;
    *found = true;
    if (strcmp(text, "auto") == 0)
        return GP_OK;
    for (int i = 0; gp_balance_names[i] != NULL; i++) {
        if (strcmp(text, gp_balance_names[i]) == 0) {
            *balance = (gp_balance)i;
            return GP_OK;
        }
        if (gp_spell_distance(text, gp_balance_names[i]) < distance) {
            near = gp_balance_names[i];
            distance = gp_spell_distance(text, near);
        }
    }
    return gp_fail(err, GP_EINVAL,
                   "class-weights is '%.60s'; it must be auto, median-frequency, inverse-frequency, none, or "
                   "one number per class (did you mean '%s'?)",
                   text, near);
}

/* Write the weights of all classes as text: the given numbers, or values computed from the training
 * data. */
static gp_status run_weigh(gp_run *run, const gp_store_info *classes, char *text, size_t bytes, gp_error *err)
{
    gp_balance balance;
    gp_store *store;
    size_t used = 0;
    bool by_data;
    gp_status status = balance_parse(&balance, &by_data, run->options.class_weights, err);

    if (status == GP_OK && !by_data) {
        snprintf(text, bytes, "%s",
                 strcmp(run->options.class_weights, "none") == 0 ? "" : run->options.class_weights);
        for (char *comma = text; (comma = strchr(comma, ',')) != NULL;)
            *comma = ' ';
        return GP_OK;
    }
    if (status == GP_OK)
        status = gp_run_open_data(run, &store, run->message.fields.data, GP_DATA_TRAIN, classes, err);
    if (status != GP_OK)
        return status;
    const uint32_t count = gp_store_get_info(store)->class_count;
    double *weights = gp_calloc(count + 1, sizeof(*weights));

    status = weights == NULL ? gp_fail(err, GP_ENOMEM, "no memory for %" PRIu32 " class weights", count)
                             : gp_balance_store(balance, store, weights, run->request->data_progress, err);
    text[0] = '\0';
    for (uint32_t k = 0; k < count && status == GP_OK; k++) {
        used += (size_t)snprintf(text + used, bytes - used, "%s%.6g", k == 0 ? "" : " ", weights[k]);
        if (used >= bytes)
            status =
                gp_fail(err, GP_ELIMIT, "the class weights of %" PRIu32 " classes are longer than %zu bytes",
                        count, bytes - 1);
    }
    gp_free(weights);
    gp_store_close(store);
    return status;
}

gp_status gp_run_weigh_classes(gp_run *run, const gp_store_info *classes, gp_error *err)
{
    gp_netspec *spec = run->training->network.spec;
    char *text = run->options.class_weights[0] == '\0' ? NULL : gp_malloc(GP_XENT_WEIGHTS_BYTES);
    bool set = false;
    gp_status status;

    if (run->options.class_weights[0] == '\0')
        return GP_OK;
    if (text == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for class weights");
    status = run_weigh(run, classes, text, GP_XENT_WEIGHTS_BYTES, err);
    for (uint32_t i = 0; i < spec->layer_count && status == GP_OK; i++)
        if (gp_params_find(spec->layers[i].kind->settings_table, "class-weights") != NULL) {
            status = gp_layer_set(&spec->layers[i], "class-weights", text, err);
            set = true;
        }
    gp_free(text);
    if (status == GP_OK && !set)
        status = gp_fail(err, GP_EINVAL,
                         "class-weights has no effect: the loss of network %s is neither crossentropy nor "
                         "pixelclassification",
                         spec->name);
    return status;
}
