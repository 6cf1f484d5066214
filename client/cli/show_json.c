/* JSON documents for --json. The writer reports errors only when the document is closed. */
#include <stdio.h>

#include "client/cli/show.h"
#include "common/base/system/file.h"

static gp_json_writer *json_open(json_document *json, bool pretty, bool array)
{
    gp_buffer_init(&json->text, SIZE_MAX / 2); /* no size limit: a task result can be large */
    gp_json_writer_init(&json->writer, &json->text, pretty);
    json->array = array;
    if (array)
        gp_json_begin_array(&json->writer, NULL);
    else
        gp_json_begin_object(&json->writer, NULL);
    return &json->writer;
}

gp_json_writer *show_json_object(json_document *json, bool pretty)
{
    return json_open(json, pretty, false);
}

gp_json_writer *show_json_array(json_document *json)
{
    return json_open(json, true, true);
}

static gp_status json_close(json_document *json, gp_error *err)
{
    if (json->array)
        gp_json_end_array(&json->writer);
    else
        gp_json_end_object(&json->writer);
    return gp_json_writer_finish(&json->writer, err);
}

gp_status show_json_print(json_document *json, gp_error *err)
{
    gp_status status = json_close(json, err);

    if (status == GP_OK)
        printf("%s\n", gp_buffer_text(&json->text));
    gp_buffer_deinit(&json->text);
    return status;
}

gp_status show_json_write(json_document *json, const char *path, gp_error *err)
{
    gp_status status = json_close(json, err);

    if (status == GP_OK)
        status = gp_file_write(path, json->text.data, json->text.bytes, err);
    gp_buffer_deinit(&json->text);
    return status;
}

gp_status show_json_write_record(json_document *json, const char *path, gp_error *err)
{
    gp_status status = json_close(json, err);

    if (status == GP_OK)
        status = gp_file_write_record(path, json->text.data, json->text.bytes, err);
    gp_buffer_deinit(&json->text);
    return status;
}
