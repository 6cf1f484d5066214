/* Write predictions as CSV, JSON lines or NumPy arrays. */
#include "client/cli/predict/predict_rows.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/show.h"
#include "common/base/memory/alloc.h"
#include "common/base/text/json.h"

enum { ARRAY_HEADER = 128, BYTE_CLASSES_MAX = 256, LINE_BYTES_MAX = 1 << 30, FILE_BUFFER = 1 << 20 };

/* ---- the file ---- */

gp_status rows_form_of(rows_form *out, const char *path, gp_error *err)
{
    static const struct {
        const char *suffix;
        rows_form form;
    } forms[] = {
        { ".csv", ROWS_CSV }, { ".jsonl", ROWS_JSON }, { ".ndjson", ROWS_JSON }, { ".npy", ROWS_ARRAY }
    };
    const char *suffix = strrchr(path, '.');
    struct stat info;

    for (size_t i = 0; suffix != NULL && i < sizeof(forms) / sizeof(forms[0]); i++)
        if (strcmp(suffix, forms[i].suffix) == 0) {
            *out = forms[i].form;
            return GP_OK;
        }
    /* standard output, and special files such as a pipe, need no suffix */
    if (path[0] != '\0' && (stat(path, &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)))
        return gp_fail(err, GP_EINVAL,
                       "cannot write predictions to %s: the suffix must be .csv, .jsonl or .npy", path);
    *out = ROWS_CSV;
    return GP_OK;
}

gp_status rows_open(rows *out, const char *path, rows_form form, uint32_t top, bool gaps, gp_error *err)
{
    *out = (rows){
        .file = stdout, .form = form, .top = top, .draft = { .fd = -1 }, .index_draft = { .fd = -1 }
    };
    gp_buffer_init(&out->line, LINE_BYTES_MAX);
    snprintf(out->path, sizeof(out->path), "%s", path);
    out->terminal = path[0] == '\0' && isatty(STDOUT_FILENO);
    if (path[0] == '\0')
        return GP_OK;
    gp_status status = gp_file_draft_stream(&out->file, &out->draft, path, err);

    if (status != GP_OK) {
        gp_error_prefix(err, "--out");
        gp_buffer_deinit(&out->line);
        return status;
    }
    setvbuf(out->file, NULL, _IOFBF, FILE_BUFFER);
    if (gaps && form == ROWS_ARRAY) { /* FILE.index.npy next to FILE.npy */
        snprintf(out->index_path, sizeof(out->index_path), "%.*s.index.npy",
                 (int)(strlen(path) - strlen(".npy")), path);
        status = gp_file_draft_stream(&out->index, &out->index_draft, out->index_path, err);
        if (status == GP_OK && fseek(out->index, ARRAY_HEADER, SEEK_SET) != 0)
            status = gp_fail_errno(err, GP_EIO, "cannot write %s", out->index_path);
    }
    return status == GP_OK ? GP_OK : rows_close(out, status, err);
}

/* Record a write error unless an error was recorded before. Uses errno from the failed call. Always
 * return false. */
static bool write_failed(rows *r)
{
    if (r->error.code == GP_OK)
        gp_fail_errno(&r->error, GP_EIO, "cannot write %s after %" PRIu64 " samples",
                      r->path[0] != '\0' ? r->path : "standard output", r->count);
    return false;
}

static bool bytes_put(rows *r, const void *data, size_t bytes)
{
    return fwrite(data, 1, bytes, r->file) == bytes || write_failed(r);
}

/* ---- the best classes ---- */

/* A class with its score. */
typedef struct best {
    uint32_t class_index;
    float score;
} best;

/* Find the `top` best classes, in descending order of score; of equal scores, the lower class
 * number comes first. Return how many classes were found. */
static uint32_t best_find(const gp_prediction *p, uint32_t top, best out[ROWS_TOP_MAX])
{
    const uint32_t wanted = top < p->classes ? top : p->classes;
    uint32_t count = 0;

    for (uint32_t k = 0; k < p->classes; k++) {
        uint32_t at = count;

        while (at > 0 && p->scores[k] > out[at - 1].score)
            at--;
        if (at >= wanted)
            continue;
        count += count < wanted;
        memmove(out + at + 1, out + at, (count - 1 - at) * sizeof(*out));
        out[at] = (best){ k, p->scores[k] };
    }
    return count;
}

/* ---- CSV ---- */

/* Write a name. Names come from data sets, so sanitize them on a terminal; files get them
 * unchanged. */
static void csv_name(const rows *r, const char *name)
{
    char clean[1024];

    show_csv_field(r->file, r->terminal ? show_clean(clean, sizeof(clean), name) : name);
}

static bool csv_row(rows *r, const gp_prediction *p)
{
    best top[ROWS_TOP_MAX];

    if (r->count == 0) {
        fputs(p->class_name != NULL ? "index,name,class" : "index,name", r->file);
        for (uint32_t k = 0; k < p->score_count && r->top == 0; k++)
            fprintf(r->file, ",%s_%" PRIu32, p->class_name != NULL ? "score" : "value", k);
        for (uint32_t i = 1; i <= r->top && i <= p->classes; i++)
            if (i == 1)
                fputs(",score", r->file);
            else
                fprintf(r->file, ",class_%" PRIu32 ",score_%" PRIu32, i, i);
        fputc('\n', r->file);
    }
    fprintf(r->file, "%" PRIu64 ",", p->index);
    csv_name(r, p->name);
    if (p->class_name != NULL) {
        fputc(',', r->file);
        csv_name(r, p->class_name);
    }
    for (uint32_t k = 0; k < p->score_count && r->top == 0; k++)
        fprintf(r->file, ",%.9g", (double)p->scores[k]);
    const uint32_t count = r->top > 0 ? best_find(p, r->top, top) : 0;

    for (uint32_t i = 0; i < count; i++) {
        if (i > 0) {
            fputc(',', r->file);
            csv_name(r, p->class_names[top[i].class_index]);
        }
        fprintf(r->file, ",%.9g", (double)top[i].score);
    }
    fputc('\n', r->file);
    return !ferror(r->file) || write_failed(r);
}

/* ---- JSON lines ---- */

/* Write a score with 9 significant digits, enough to restore the float32 value. */
static void put_score(gp_json_writer *writer, const char *key, float score)
{
    char text[24];

    snprintf(text, sizeof(text), "%.9g", (double)score);
    gp_json_put_number(writer, key, strtod(text, NULL));
}

static bool json_row(rows *r, const gp_prediction *p)
{
    gp_json_writer writer;
    best top[ROWS_TOP_MAX];

    gp_buffer_clear(&r->line);
    gp_json_writer_init(&writer, &r->line, false);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_integer(&writer, "index", (int64_t)p->index);
    gp_json_put_text(&writer, "name", p->name);
    if (p->class_name != NULL)
        gp_json_put_text(&writer, "class", p->class_name);
    if (p->class_name != NULL && p->label >= 0 && (uint32_t)p->label < p->classes)
        gp_json_put_text(&writer, "label", p->class_names[p->label]);
    if (p->class_name != NULL)
        gp_json_put_text(&writer, "score_type", p->score_type);
    if (r->top > 0) {
        const uint32_t count = best_find(p, r->top, top);

        gp_json_begin_array(&writer, "top");
        for (uint32_t i = 0; i < count; i++) {
            gp_json_begin_object(&writer, NULL);
            gp_json_put_text(&writer, "class", p->class_names[top[i].class_index]);
            put_score(&writer, "score", top[i].score);
            gp_json_end_object(&writer);
        }
        gp_json_end_array(&writer);
    } else {
        gp_json_begin_array(&writer, p->class_name != NULL ? "scores" : "values");
        for (uint32_t k = 0; k < p->score_count; k++)
            put_score(&writer, NULL, p->scores[k]);
        gp_json_end_array(&writer);
    }
    gp_json_end_object(&writer);
    if (gp_json_writer_finish(&writer, &r->error) != GP_OK ||
        gp_buffer_append(&r->line, "\n", 1, &r->error) != GP_OK)
        return false;
    return bytes_put(r, r->line.data, r->line.bytes);
}

/* ---- FILE.npy (numpy.lib.format, version 1.0) ---- */

/* Write an array header at the start of the file. The sample count is only known at the end.
 *   shape  data type and the dimensions after the first one */
static bool array_header(rows *r, FILE *file, const char *shape)
{
    char header[ARRAY_HEADER + 1], words[ARRAY_HEADER];
    int length = snprintf(words, sizeof(words),
                          "{'descr': '%.3s', 'fortran_order': False, 'shape': (%" PRIu64 "%s,), }", shape,
                          r->count, shape + 3);

    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10); /* header length 118, little-endian */
    snprintf(header + 10, sizeof(header) - 10, "%-117.117s\n", length < 118 ? words : "");
    if (length >= 118 || fseek(file, 0, SEEK_SET) != 0)
        return write_failed(r);
    return fwrite(header, 1, ARRAY_HEADER, file) == ARRAY_HEADER || write_failed(r);
}

/* Set up the array: data type and shape. Arrays hold the class of each pixel, or all scores. */
static bool array_begin(rows *r, const gp_prediction *p)
{
    const char *type = p->pixels == NULL ? "<f4" : p->classes > BYTE_CLASSES_MAX ? "<i4" : "|u1";
    uint64_t elements = 1;
    char shape[48] = "";
    size_t used = 0;

    for (uint32_t d = 0; d < p->rank; d++)
        elements *= p->dims[d];
    if (p->pixels == NULL && elements != p->score_count) /* several outputs, concatenated */
        used = (size_t)snprintf(shape, sizeof(shape), ", %" PRIu32, p->score_count);
    for (uint32_t d = p->pixels != NULL;
         d < p->rank && used < sizeof(shape) - 1 && (p->pixels != NULL || elements == p->score_count); d++)
        used += (size_t)snprintf(shape + used, sizeof(shape) - used, ", %" PRIu64, p->dims[d]);
    snprintf(r->shape, sizeof(r->shape), "%s%s", type, shape);
    if (p->pixels != NULL && p->classes <= BYTE_CLASSES_MAX) {
        r->classes = gp_malloc(elements / p->dims[0]);
        if (r->classes == NULL) {
            gp_fail(&r->error, GP_ENOMEM, "no memory for %" PRIu64 " pixels", elements / p->dims[0]);
            return false;
        }
    }
    return fseek(r->file, ARRAY_HEADER, SEEK_SET) == 0 || write_failed(r);
}

static bool array_row(rows *r, const gp_prediction *p)
{
    size_t pixels = 1;

    if (r->count == 0 && !array_begin(r, p))
        return false;
    const int64_t sample = (int64_t)p->index;

    if (r->index != NULL && fwrite(&sample, 1, sizeof(sample), r->index) != sizeof(sample))
        return write_failed(r);
    if (p->pixels == NULL)
        return bytes_put(r, p->scores, p->score_count * sizeof(float));
    for (uint32_t d = 1; d < p->rank; d++) {
        pixels *= (size_t)p->dims[d];
        if (r->count == 0 && d < 3)
            r->size[d - 1] = p->dims[d];
        else if (d < 3 && p->dims[d] != r->size[d - 1]) {
            gp_fail(&r->error, GP_EINVAL,
                    "%s is %" PRIu64 "x%" PRIu64 " (height x width) after images of %" PRIu64 "x%" PRIu64
                    ", but all samples of an array have one size; use --out FOLDER/ for label images, or "
                    "--image-fit input for classes at the network's size",
                    p->name, p->dims[1], p->dims[2], r->size[0], r->size[1]);
            return false;
        }
    }
    if (r->classes == NULL)
        return bytes_put(r, p->pixels, pixels * sizeof(int32_t));
    for (size_t i = 0; i < pixels; i++)
        r->classes[i] = (uint8_t)p->pixels[i];
    return bytes_put(r, r->classes, pixels);
}

/* ---- rows ---- */

bool rows_add(rows *r, const gp_prediction *p)
{
    static bool (*const writers[])(rows *, const gp_prediction *) = {
        [ROWS_CSV] = csv_row, [ROWS_JSON] = json_row, [ROWS_ARRAY] = array_row
    };

    errno = 0;
    if (r->form != ROWS_ARRAY && p->rank != 1)
        gp_fail(&r->error, GP_EINVAL,
                "the model has %" PRIu32 " numbers per sample in %" PRIu32
                " dimensions; use --out FILE.npy for an array%s",
                p->score_count, p->rank, p->classes != 0 ? " of the class of each pixel" : "");
    else if (r->form != ROWS_ARRAY && r->top > 0 && p->classes == 0)
        gp_fail(&r->error, GP_EINVAL, "--top-k has no effect on a regression model; drop it");
    if (r->error.code != GP_OK || !writers[r->form](r, p))
        return false;
    r->count++;
    return true;
}

gp_status rows_close(rows *r, gp_status status, gp_error *err)
{
    if (status == GP_OK && r->form == ROWS_ARRAY && array_header(r, r->file, r->shape) && r->index != NULL)
        array_header(r, r->index, "<i8");
    errno = 0;
    if (r->index != NULL && fclose(r->index) != 0 && status == GP_OK)
        write_failed(r);
    if ((r->path[0] == '\0' ? fflush(r->file) : fclose(r->file)) != 0 && status == GP_OK)
        write_failed(r);
    if (r->error.code != GP_OK) {
        status = r->error.code;
        *err = r->error;
    }
    /* Rename the index first, so that an existing array always has an index. */
    if (status == GP_OK && r->index != NULL)
        status = gp_file_draft_commit(&r->index_draft, err);
    if (status == GP_OK && r->path[0] != '\0')
        status = gp_file_draft_commit(&r->draft, err);
    gp_file_draft_discard(&r->index_draft);
    gp_file_draft_discard(&r->draft);
    gp_buffer_deinit(&r->line);
    gp_free(r->classes);
    return status;
}
