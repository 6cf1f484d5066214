/* fuzz_text.c: text and JSON from users and peers. The first byte selects the format:
 *   o training options, a augmentation, i an initializer, d a device list, j any JSON, c a core
 * list */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/text/json.h"
#include "common/data/store/augment.h"
#include "common/model/train_options.h"
#include "proto/device/device_list.h"
#include "worker/process/device.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void promise(bool kept)
{
    if (!kept)
        abort();
}

/* Parse training options. Accepted options survive a round trip. */
static gp_status options_run(const char *text, size_t bytes, gp_error *err)
{
    static gp_train_options options, again;
    double loads[16];
    bool given;
    gp_status status = gp_train_options_from_json(&options, text, bytes, err);

    if (status != GP_OK)
        return status;
    gp_buffer once, twice;
    gp_json_writer writer;

    gp_buffer_init(&once, 1 << 16);
    gp_buffer_init(&twice, 1 << 16);
    gp_json_writer_init(&writer, &once, false);
    gp_json_begin_object(&writer, NULL);
    gp_params_to_json(gp_train_options_table, &options, false, &writer);
    gp_json_end_object(&writer);
    promise(gp_json_writer_finish(&writer, NULL) == GP_OK);
    promise(gp_train_options_from_json(&again, gp_buffer_text(&once), once.bytes, NULL) == GP_OK);
    gp_json_writer_init(&writer, &twice, false);
    gp_json_begin_object(&writer, NULL);
    gp_params_to_json(gp_train_options_table, &again, false, &writer);
    gp_json_end_object(&writer);
    promise(gp_json_writer_finish(&writer, NULL) == GP_OK);
    promise(once.bytes == twice.bytes && memcmp(once.data, twice.data, once.bytes) == 0);
    gp_buffer_deinit(&once);
    gp_buffer_deinit(&twice);
    status = gp_train_options_loads(&options, 16, loads, &given, err);
    return status == GP_OK ? gp_train_options_scale(&options, 16, err) : status;
}

static gp_status json_run(const char *text, size_t bytes, gp_error *err)
{
    gp_json *document;
    gp_status status = gp_json_parse(&document, text, bytes, err);

    if (status == GP_OK)
        gp_json_free(document);
    return status;
}

static gp_status cores_run(const char *text, gp_error *err)
{
    int *cores;
    uint32_t count;
    gp_status status = gp_cores_parse(&cores, &count, text, err);

    if (status == GP_OK)
        gp_free(cores);
    return status;
}

static gp_status text_run(uint8_t which, const char *text, size_t bytes, gp_error *err)
{
    static gp_device_list devices;
    gp_augment augment;
    gp_init_rule rule;

    switch (which) {
    case 'o':
        return options_run(text, bytes, err);
    case 'a':
        return gp_augment_parse(&augment, text, err);
    case 'i':
        return gp_init_rule_parse(&rule, text, err);
    case 'd':
        return gp_device_list_read(&devices, text, bytes, err);
    case 'j':
        return json_run(text, bytes, err);
    case 'c':
        return cores_run(text, err);
    default:
        return GP_OK;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    int64_t live = gp_alloc_get_stats().live;
    gp_error err = { GP_OK, "" };
    char *text = bytes == 0 ? NULL : gp_malloc(bytes);

    if (text == NULL)
        return 0;
    memcpy(text, data + 1, bytes - 1);
    text[bytes - 1] = '\0';
    if (text_run(data[0], text, bytes - 1, &err) != GP_OK)
        promise(err.message[0] != '\0');
    gp_free(text);
    promise(gp_alloc_get_stats().live == live);
    return 0;
}
