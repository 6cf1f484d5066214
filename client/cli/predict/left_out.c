#include "client/cli/predict/left_out.h"

#include <string.h>

void left_out_init(left_out *images)
{
    images->count = 0;
    gp_buffer_init(&images->names, LEFT_OUT_NAMES_BYTES_MAX);
}

void left_out_deinit(left_out *images)
{
    gp_buffer_deinit(&images->names);
}

void left_out_add(left_out *images, const char *name)
{
    images->count++;
    (void)gp_buffer_append(&images->names, name, strlen(name) + 1, NULL);
}

void left_out_put(const left_out *images, gp_json_writer *writer)
{
    const char *name = gp_buffer_text(&images->names), *end = name + images->names.bytes;

    gp_json_put_integer(writer, "skipped", (int64_t)images->count);
    gp_json_begin_array(writer, "skipped_names");
    for (; name < end; name += strlen(name) + 1)
        gp_json_put_text(writer, NULL, name);
    gp_json_end_array(writer);
}
