/* `gradpool model edit`: remove, add, set and freeze layers of a network, and replace the
 * classifier head. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/model/changes.h"
#include "client/cli/model/model_verbs.h"
#include "client/cli/show.h"
#include "client/train/transfer.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/data/store/store.h"
#include "common/model/onnx/onnx.h"

enum { NEW_WEIGHTS_SEED = 1, CLASS_FILE_BYTES_MAX = 4 << 20 };

/* Parsed --class-names; count 0: not given. */
typedef struct class_names {
    char *text, **names; /* `names` points into `text`; both owned */
    uint32_t count;
} class_names;

/* An edit: the options, the networks before and after, and the data. */
typedef struct model_edit {
    cli_call *call;
    const net_options *options;
    gp_network network;
    gp_store *data; /* data source; NULL: not given */
    gp_edit *edit;
    gp_edited edited;
    bool head; /* the head was replaced */
    class_names named;
} model_edit;

/* Call `apply` with the value of every --NAME option on the command line, in order. The option
 * parser keeps only the last value. */
static gp_status each(model_edit *knife, const char *name,
                      gp_status (*apply)(gp_edit *edit, const char *text, gp_error *err), gp_error *err)
{
    const size_t length = strlen(name);
    gp_status status = GP_OK;

    for (int i = 2; i < knife->call->argc && status == GP_OK; i++) {
        const char *word = knife->call->argv[i];

        if (strncmp(word, "--", 2) != 0 || strncmp(word + 2, name, length) != 0)
            continue;
        if (word[2 + length] == '=')
            status = apply(knife->edit, word + 3 + length, err);
        else if (word[2 + length] == '\0' && i + 1 < knife->call->argc)
            status = apply(knife->edit, knife->call->argv[++i], err);
    }
    return status;
}

/* The number of channels limits the other settings of the input, so the size is set first. */
static bool is_size(const char *text)
{
    return strncmp(text, "input.size=", strlen("input.size=")) == 0;
}

static gp_status size_set(gp_edit *edit, const char *text, gp_error *err)
{
    return is_size(text) ? gp_edit_set(edit, text, err) : GP_OK;
}

static gp_status setting_set(gp_edit *edit, const char *text, gp_error *err)
{
    return is_size(text) ? GP_OK : gp_edit_set(edit, text, err);
}

/* Check the options that need neither the network nor the data. */
static int edit_check(const model_edit *knife)
{
    const net_options *options = knife->options;
    cli_call *call = knife->call;
    const char *end = strrchr(options->out, '.');
    bool classes = options->classes[0] != '\0';

    if (options->out[0] == '\0')
        return cli_usage(call,
                         "--out is missing; give -o FILE.onnx, or FILE.json for layers without weights");
    if (end == NULL || (strcmp(end, ".onnx") != 0 && strcmp(end, ".json") != 0))
        return cli_usage(call, "--out is '%s'; it must end in .onnx or .json", options->out);
    if (options->remove_last != 0 && options->remove_from[0] != '\0')
        return cli_usage(call, "--remove-last and --remove-from are both given; drop one of them");
    if (strcmp(options->classes, "auto") == 0 && options->data[0] == '\0')
        return cli_usage(call, "--classes auto needs --data SOURCE");
    if (cli_given(call, "head-learn-rate-factor") && !classes)
        return cli_usage(
            call, "--head-learn-rate-factor has no effect without --classes: the head is not replaced");
    if (options->data[0] != '\0' && !classes)
        return cli_usage(call, "--data has no effect without --classes auto");
    return CLI_OK;
}

/* Load the network: a file, a downloaded pretrained network, or an untrained zoo network. Then open
 * the data source, preferring the test part. */
static gp_status edit_load(model_edit *knife, gp_error *err)
{
    const net_options *options = knife->options;
    const char *name = knife->call->words[1];
    gp_status status;

    if (gp_network_is_file(name))
        status = gp_network_load(&knife->network, name, NULL, 0, err);
    /* downloaded by `model get` */
    else if (gp_network_pretrained(&knife->network, name, NULL) == GP_OK)
        status = GP_OK;
    else
        status = gp_zoo_build(&knife->network.spec, name, NULL, 0, err);
    if (status != GP_OK || options->data[0] == '\0')
        return status;
    gp_store_options images = gp_store_options_for(&knife->network.spec->input);

    status = gp_store_open_with(&knife->data, options->data, GP_DATA_TEST, &images, err);
    if (status == GP_ENOENT)
        status = gp_store_open_with(&knife->data, options->data, GP_DATA_TRAIN, &images, err);
    return status;
}

/* Replace the head if --classes is given. "auto" takes the class count from the data. */
static gp_status edit_head(model_edit *knife, gp_error *err)
{
    const net_options *options = knife->options;
    gp_edit_head head = { .weight_learn_rate = options->head_factor[0],
                          .bias_learn_rate = options->head_factor[1] };
    gp_status status = GP_OK;

    if (options->classes[0] == '\0')
        return GP_OK;
    if (knife->data != NULL)
        status = gp_transfer_classes(&head.classes, options->classes, gp_store_get_info(knife->data)->source,
                                     gp_store_get_info(knife->data)->class_count, err);
    else
        status = gp_transfer_classes(&head.classes, options->classes, NULL, 0, err);
    if (status == GP_OK)
        status = gp_edit_set_head(knife->edit, &head, err);
    knife->head = status == GP_OK;
    return status;
}

/* Split --class-names: at commas, or at FILE.txt line ends. GP_EINVAL: duplicate name. GP_ELIMIT:
 * too many names. */
static gp_status names_read(model_edit *knife, gp_error *err)
{
    const char *given = knife->options->class_names;
    const size_t length = strlen(given);
    class_names *named = &knife->named;
    const char *between = ",";
    char *rest;

    if (length == 0)
        return GP_OK;
    if (length > 4 && strcmp(given + length - 4, ".txt") == 0) {
        uint8_t *data;
        size_t bytes;
        gp_status status = gp_file_read(&data, &bytes, given, CLASS_FILE_BYTES_MAX, err);

        if (status != GP_OK)
            return status;
        named->text = gp_calloc(bytes + 1, 1);
        if (named->text != NULL)
            memcpy(named->text, data, bytes);
        gp_free(data);
        between = "\r\n";
    } else {
        named->text = gp_strdup(given);
    }
    named->names = gp_calloc(GP_STORE_CLASSES_MAX, sizeof(*named->names));
    if (named->text == NULL || named->names == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for class names");
    for (char *name = strtok_r(named->text, between, &rest); name != NULL;
         name = strtok_r(NULL, between, &rest)) {
        if (named->count == GP_STORE_CLASSES_MAX)
            return gp_fail(err, GP_ELIMIT, "%.100s has more than %d class names", given,
                           GP_STORE_CLASSES_MAX);
        for (uint32_t i = 0; i < named->count; i++)
            if (strcmp(named->names[i], name) == 0)
                return gp_fail(err, GP_EINVAL, "duplicate class name '%.64s'", name);
        named->names[named->count++] = name;
    }
    return GP_OK;
}

/* Write the edited network: layers and weights to FILE.onnx, or only layers to FILE.json. */
static gp_status edit_write(const model_edit *knife, gp_error *err)
{
    const gp_edited *edited = &knife->edited;
    const char *out = knife->options->out, *const * names;
    uint32_t count;
    gp_buffer buffer;
    gp_status status;

    if (strcmp(strrchr(out, '.'), ".json") != 0) {
        if (edited->weights == NULL)
            return gp_fail(err, GP_EINVAL,
                           "%.100s has no weights, which an ONNX file needs; use -o FILE.json",
                           knife->call->words[1]);

        /* Choose the class names to save: --class-names, or else the data's names if the head was
         * replaced, or else the original network's names. No names are saved if their number does
         * not match the classes. */
        const gp_store_info *info = knife->data == NULL ? NULL : gp_store_get_info(knife->data);

        names = knife->head ? NULL : (const char *const *)knife->network.class_names;
        count = knife->head ? 0 : knife->network.class_count;
        if (knife->head && info != NULL) {
            names = info->class_names;
            count = info->class_count;
        }
        if (knife->named.count > 0) {
            names = (const char *const *)knife->named.names;
            count = knife->named.count;
        }
        if (count != knife->edited.graph->class_count) {
            names = NULL;
            count = 0;
        }
        return gp_onnx_save(out, edited->spec, edited->graph, edited->weights, names, count, 0, err);
    }
    gp_buffer_init(&buffer, GP_NETSPEC_BYTES_MAX);
    status = gp_netspec_to_json(edited->spec, &buffer, true, err);
    if (status == GP_OK)
        status = gp_file_write(out, buffer.data, buffer.bytes, err);
    gp_buffer_deinit(&buffer);
    return status;
}

static gp_status edit_report(const model_edit *knife, gp_error *err)
{
    const gp_edited *edited = &knife->edited;
    cli_changes changes = { 0 };
    gp_status status = GP_OK;
    json_document json;

    for (uint32_t i = 0; i < edited->change_count; i++) {
        char output[64];
        gp_layer_change change = gp_transfer_change(&edited->changes[i], output);

        changes_add(&changes, &change);
    }
    if (knife->options->common.json) {
        gp_json_writer *writer = show_json_object(&json, true);

        gp_json_put_text(writer, "name", edited->spec->name);
        gp_json_put_text(writer, "out", knife->options->out);
        gp_json_put_integer(writer, "parameters", (int64_t)edited->graph->learned_count);
        gp_json_put_integer(writer, "classes", edited->graph->class_count);
        changes_write(&changes, writer);
        status = show_json_print(&json, err);
    } else if (!knife->options->common.quiet) {
        changes_print(&changes);
        printf("%s%s: %zu parameters%s\n",
               edited->change_count == 0 && knife->named.count == 0 ? "no change; " : "", knife->options->out,
               edited->graph->learned_count,
               strcmp(strrchr(knife->options->out, '.'), ".json") == 0 && edited->weights != NULL
                   ? "; the .json file has the layers without weights"
                   : "");
    }
    gp_free(changes.rows);
    return status;
}

gp_status net_edit(cli_call *call, gp_error *err)
{
    model_edit knife = { .call = call, .options = call->options };
    gp_status status;

    call->code = edit_check(&knife);
    if (call->code != CLI_OK)
        return GP_OK;
    status = names_read(&knife, err);
    if (status == GP_OK)
        status = edit_load(&knife, err);
    if (status == GP_OK) {
        /* Apply all edits in a fixed order: unfreeze, remove, add, head, set, freeze. */
        const net_options *options = knife.options;

        status = gp_edit_new(&knife.edit, knife.network.spec, knife.network.weights, err);
        if (status == GP_OK && options->unfreeze)
            gp_edit_unfreeze(knife.edit);
        if (status == GP_OK && options->remove_last != 0)
            status = gp_edit_remove_last(knife.edit, (uint32_t)options->remove_last, err);
        if (status == GP_OK && options->remove_from[0] != '\0')
            status = gp_edit_remove_from(knife.edit, options->remove_from, err);
        if (status == GP_OK)
            status = each(&knife, "add", gp_edit_add, err);
        if (status == GP_OK)
            status = edit_head(&knife, err);
        if (status == GP_OK)
            status = each(&knife, "set", size_set, err);
        if (status == GP_OK)
            status = each(&knife, "set", setting_set, err);
        if (status == GP_OK && options->freeze_up_to[0] != '\0')
            status = gp_edit_freeze(knife.edit, options->freeze_up_to, err);
        if (status == GP_OK)
            status = gp_edit_finish(knife.edit, (gp_init_rule){ .kind = GP_INIT_GLOROT }, NEW_WEIGHTS_SEED,
                                    &knife.edited, err);
    }
    if (status == GP_OK && knife.options->class_names[0] != '\0' &&
        knife.named.count != knife.edited.graph->class_count)
        status = gp_fail(err, GP_EINVAL, "%" PRIu32 " class names for a network of %" PRIu32 " classes",
                         knife.named.count, knife.edited.graph->class_count);
    if (status == GP_OK)
        status = edit_write(&knife, err);
    if (status == GP_OK)
        status = edit_report(&knife, err);
    gp_free(knife.named.names);
    gp_free(knife.named.text);
    gp_edited_deinit(&knife.edited);
    gp_edit_free(knife.edit);
    gp_store_close(knife.data);
    gp_network_deinit(&knife.network);
    return status;
}
