/* left_out.h -- the images that predict and evaluate could not read and passed over (--on-bad skip). */
#ifndef GP_CLI_LEFT_OUT_H
#define GP_CLI_LEFT_OUT_H

#include "client/cli/cli.h"
#include "common/base/memory/buffer.h"
#include "common/base/text/json.h"
#include "common/model/train_options.h"

enum {
    LEFT_OUT_NAMES_BYTES_MAX = 16 << 20,
    LEFT_OUT_JSON_BYTES_MAX = 7 * LEFT_OUT_NAMES_BYTES_MAX, /* a byte takes up to 6 */
};

/* The options have an int of that name. */
#define CLI_ON_BAD_PARAM(options_type)                                                                       \
    {                                                                                                        \
        .name = "on-bad", GP_PARAM_FIELD(options_type, on_bad), .words = gp_on_bad_words,                    \
        .help = GP_ON_BAD_HELP                                                                               \
    }

typedef struct left_out {
    gp_buffer names; /* one behind the other, each with its NUL */
    uint64_t count;
} left_out;

void left_out_init(left_out *images);
void left_out_deinit(left_out *images);

/* Names beyond LEFT_OUT_NAMES_BYTES_MAX are only counted. */
void left_out_add(left_out *images, const char *name);

/* "skipped": how many, "skipped_names": which. */
void left_out_put(const left_out *images, gp_json_writer *writer);

#endif
