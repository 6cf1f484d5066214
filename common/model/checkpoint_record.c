/* Implement checkpoint_record.h. */
#include "common/model/checkpoint_record.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/memory/crc32c.h"

static int compare_newest_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x > y ? -1 : x < y;
}

/* Parse a file name <step>.json. */
static bool parse_name(const char *name, uint64_t *step)
{
    char *end;

    if (name[0] < '0' || name[0] > '9')
        return false;
    *step = strtoull(name, &end, 10);
    return strcmp(end, ".json") == 0;
}

gp_status gp_checkpoint_list_steps(gp_checkpoint_list *out, const char *directory, gp_error *err)
{
    DIR *folder = opendir(directory);

    out->count = 0;
    if (folder == NULL)
        return gp_fail_errno(err, errno == ENOENT ? GP_ENOENT : GP_EIO, "cannot list the checkpoints in %s",
                             directory);
    gp_status status = GP_OK;

    while (out->count < GP_CHECKPOINT_LIST_MAX) {
        errno = 0; /* readdir() returns NULL at the end and on an error; only an error sets errno */
        struct dirent *entry = readdir(folder);

        if (entry == NULL && errno != 0)
            status = gp_fail_errno(err, GP_EIO, "cannot list the checkpoints in %s", directory);
        if (entry == NULL)
            break;
        if (parse_name(entry->d_name, &out->step[out->count]))
            out->count++;
    }
    closedir(folder);
    if (status != GP_OK)
        out->count = 0;
    qsort(out->step, out->count, sizeof(out->step[0]), compare_newest_first);
    return status;
}

bool gp_checkpoint_split_path(const char *path, char directory[1024], uint64_t *step)
{
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;

    snprintf(directory, 1024, "%s", path);
    if (!parse_name(name, step))
        return false;
    snprintf(directory, 1024, "%.*s", slash == NULL ? 1 : (int)(slash - path), slash == NULL ? "." : path);
    return true;
}

/* ---- reading and writing a record ---- */

/* Find the checksum digits. NULL: the text has no checksum. */
static char *find_checksum(const gp_buffer *record)
{
    static const char key[] = "\"check\": \"";
    char *at = strstr(gp_buffer_text(record), key);

    return at != NULL && strlen(at) > sizeof(key) + GP_CHECKSUM_DIGITS ? at + sizeof(key) - 1 : NULL;
}

uint32_t gp_checkpoint_checksum(const gp_buffer *record, char found[GP_CHECKSUM_DIGITS + 1])
{
    char *digits = find_checksum(record);

    found[0] = '\0';
    if (digits == NULL)
        return 0;
    snprintf(found, GP_CHECKSUM_DIGITS + 1, "%.*s", GP_CHECKSUM_DIGITS, digits);
    memset(digits, '0', GP_CHECKSUM_DIGITS);
    return gp_crc32c(0, record->data, record->bytes);
}

void gp_checkpoint_set_checksum(const gp_buffer *record, uint32_t checksum)
{
    char digits[GP_CHECKSUM_DIGITS + 1];

    snprintf(digits, sizeof(digits), "%08" PRIx32, checksum);
    memcpy(find_checksum(record), digits, GP_CHECKSUM_DIGITS);
}

gp_status gp_checkpoint_read_record(gp_json **out, const char *directory, uint64_t step, gp_error *err)
{
    char path[1200], found[GP_CHECKSUM_DIGITS + 1], wanted[GP_CHECKSUM_DIGITS + 1];
    gp_buffer text;
    FILE *file;
    gp_status status = GP_OK;

    snprintf(path, sizeof(path), "%s/%" PRIu64 ".json", directory, step);
    file = fopen(path, "re");
    if (file == NULL)
        return gp_fail_errno(err, GP_ENOENT, "cannot open %s", path);
    gp_buffer_init(&text, GP_CHECKPOINT_RECORD_BYTES_MAX);
    for (char part[4096]; status == GP_OK && !feof(file) && !ferror(file);)
        status = gp_buffer_append(&text, part, fread(part, 1, sizeof(part), file), err);
    fclose(file);
    if (status == GP_ELIMIT)
        status = gp_fail(err, GP_ECORRUPT, "it is damaged: its record has more than %d bytes",
                         GP_CHECKPOINT_RECORD_BYTES_MAX);
    snprintf(wanted, sizeof(wanted), "%08" PRIx32, gp_checkpoint_checksum(&text, found));
    if (status == GP_OK && strcmp(found, wanted) != 0)
        status = gp_fail(err, GP_ECORRUPT, "it is damaged: its checksum is %s, but its record states %s",
                         found[0] == '\0' ? "missing" : found, wanted);
    if (status == GP_OK)
        status = gp_json_parse(out, gp_buffer_text(&text), text.bytes, err);
    gp_buffer_deinit(&text);
    if (status != GP_OK)
        gp_error_prefix(err, "%s", path);
    return status;
}

gp_status gp_checkpoint_check_tensors(const gp_json *record, const char *directory, uint64_t step,
                                      gp_error *err)
{
    const int64_t wanted = gp_json_integer(gp_json_member(record, "bytes"), 0);
    char path[1200];
    struct stat info;

    snprintf(path, sizeof(path), "%s/%" PRIu64 ".safetensors", directory, step);
    if (stat(path, &info) != 0)
        return errno == ENOENT ? gp_fail_errno(err, GP_ECORRUPT, "cannot open %s", path) : GP_OK;
    if ((int64_t)info.st_size != wanted)
        return gp_fail(err, GP_ECORRUPT, "%s is damaged: it has %" PRId64 " bytes, must have %" PRId64, path,
                       (int64_t)info.st_size, wanted);
    return GP_OK;
}

const char *gp_checkpoint_record_run(const gp_json *record)
{
    return gp_json_text(gp_json_member(gp_json_member(record, "options"), "run-id"), "");
}

/* ---- checking a record against a training ---- */

/* Options that the state in a checkpoint depends on. */
static const char *const fixed[] = { "solver", "mini-batch-size", "shuffle", "seed" };

/* Compare these options in a record with the training's options. */
static gp_status check_options(const gp_json *record, const gp_train_options *options, const char *path,
                               gp_error *err)
{
    gp_train_options then, now = *options;
    gp_error why;

    gp_params_default(gp_train_options_table, &then);

    /* The checksum is correct, so an unknown option is not damage: another version wrote it. */
    if (gp_params_from_json(gp_train_options_table, &then, gp_json_member(record, "options"), &why) != GP_OK)
        return gp_fail(err, GP_EVERSION,
                       "%s was written by another version of gradpool: %s; resume with that version, "
                       "or name an older STEP.json",
                       path, why.message);
    if (now.mini_batch_size == 0)
        now.mini_batch_size = then.mini_batch_size;
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        const gp_param *param = gp_params_find(gp_train_options_table, fixed[i]);
        char was[80], is[80];

        gp_params_format(param, &then, was, sizeof(was));
        gp_params_format(param, &now, is, sizeof(is));
        if (strcmp(was, is) != 0)
            return gp_fail(err, GP_EINVAL,
                           "%s was written with %s %s, but this training has %s; resume with --%s %s", path,
                           fixed[i], was, is, fixed[i], was);
    }
    return GP_OK;
}

gp_status gp_checkpoint_check_record(const gp_json *record, const gp_graph *graph,
                                     const gp_train_options *options, const char *path, gp_error *err)
{
    int64_t format = gp_json_integer(gp_json_member(record, "format"), 0);
    char layout[20];

    if (format != GP_CHECKPOINT_FORMAT)
        return gp_fail(err, GP_EVERSION, "%s has format %" PRId64 ", but this program supports format %d",
                       path, format, GP_CHECKPOINT_FORMAT);
    snprintf(layout, sizeof(layout), "%016" PRIx64, gp_graph_layout_hash(graph));
    if (strcmp(layout, gp_json_text(gp_json_member(record, "layout"), "")) != 0)
        return gp_fail(err, GP_EINVAL, "the tensors of %s (network %s) do not match network %s", path,
                       gp_json_text(gp_json_member(record, "network"), "?"), graph->spec->name);
    return check_options(record, options, path, err);
}

bool gp_run_id_is_valid(const char *text)
{
    size_t bytes = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.");

    return text[bytes] == '\0' && bytes >= 1 && bytes < sizeof(((gp_train_options *)0)->run_id);
}
