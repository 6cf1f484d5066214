/* checkpoint.c -- read and write training checkpoints; checkpoint.h describes the format. Reader
 * and writer are in one file so that their formats stay in step. */
#include "worker/train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/buffer.h"
#include "common/base/memory/crc32c.h"
#include "common/base/system/directory.h"
#include "common/base/system/file.h"
#include "common/base/text/json.h"
#include "common/base/system/fault.h"
#include "common/base/system/fence.h"
#include "common/model/checkpoint_record.h"
#include "worker/train/loss_scale.h"

enum {
    BLOCK_BYTES = 4 << 20,
    BLOCKS_MAX = 1 << 16,
    HEADER_BYTES_MAX = 16 << 20,
    KEPT = 2,
};

/* ---- blobs ---- */

bool gp_checkpoint_take_blobs(gp_checkpoint *copy, const gp_checkpoint *like, size_t count)
{
    size_t blob = count * sizeof(float);

    copy->state_blobs = like->state_blobs;
    copy->parameters = gp_malloc(blob);
    copy->state = gp_malloc(blob * copy->state_blobs + 1);
    copy->best = like->best == NULL ? NULL : gp_malloc(blob);
    return copy->parameters != NULL && copy->state != NULL && (copy->best != NULL || like->best == NULL);
}

void gp_checkpoint_free_blobs(gp_checkpoint *copy)
{
    gp_free(copy->parameters);
    gp_free(copy->state);
    gp_free(copy->best);
}

void gp_checkpoint_copy(gp_checkpoint *copy, const gp_checkpoint *from, size_t count)
{
    size_t blob = count * sizeof(float);

    memcpy(copy->parameters, from->parameters, blob);
    memcpy(copy->state, from->state, blob * copy->state_blobs);
    if (copy->best != NULL)
        memcpy(copy->best, from->best, blob);
    copy->progress = from->progress;
    copy->optim_step = from->optim_step;
    copy->is_best = from->is_best;
}

/* ---- tensor file layout: a header with each tensor's position, then the blobs ---- */

/* Build the header, padded to 8 bytes. It depends only on network and solver, so the reader can
 * compare it byte by byte. */
static gp_status header_make(gp_buffer *out, const gp_graph *graph, const gp_checkpoint *checkpoint,
                             gp_error *err)
{
    uint32_t blobs = 1 + checkpoint->state_blobs + (checkpoint->best != NULL);
    gp_json_writer writer;
    gp_buffer text;
    gp_status status;

    gp_buffer_init(&text, HEADER_BYTES_MAX);
    gp_json_writer_init(&writer, &text, false);
    gp_json_begin_object(&writer, NULL);
    for (uint32_t blob = 0; blob < blobs; blob++) {
        char prefix[32] = "";

        if (blob > checkpoint->state_blobs)
            snprintf(prefix, sizeof(prefix), "best.");
        else if (blob > 0)
            snprintf(prefix, sizeof(prefix), "optimizer.%" PRIu32 ".", blob - 1);
        for (uint32_t i = graph->parameter_count; i-- > 0;) { /* in offset order */
            const gp_parameter *parameter = &graph->parameters[i];
            const size_t first = (size_t)blob * graph->blob_count + parameter->offset;
            char name[GP_NAME_MAX + 64];

            snprintf(name, sizeof(name), "%s%s", prefix, parameter->name);
            gp_json_begin_object(&writer, name);
            gp_json_put_text(&writer, "dtype", "F32");
            gp_json_begin_array(&writer, "shape");
            for (uint32_t k = 0; k < parameter->shape.rank; k++)
                gp_json_put_integer(&writer, NULL, parameter->shape.dim[k]);
            gp_json_end_array(&writer);
            gp_json_begin_array(&writer, "data_offsets");
            gp_json_put_integer(&writer, NULL, (int64_t)(first * sizeof(float)));
            gp_json_put_integer(&writer, NULL, (int64_t)((first + (size_t)parameter->count) * sizeof(float)));
            gp_json_end_array(&writer);
            gp_json_end_object(&writer);
        }
    }
    gp_json_end_object(&writer);
    status = gp_json_writer_finish(&writer, err);
    while (status == GP_OK && text.bytes % 8 != 0)
        status = gp_buffer_append(&text, " ", 1, err);
    uint64_t bytes = text.bytes;

    gp_buffer_init(out, HEADER_BYTES_MAX + sizeof(bytes));
    if (status == GP_OK)
        status = gp_buffer_append(out, &bytes, sizeof(bytes), err);
    if (status == GP_OK)
        status = gp_buffer_append(out, text.data, text.bytes, err);
    gp_buffer_deinit(&text);
    return status;
}

/* Consecutive tensor file parts. */
typedef struct piece {
    void *data;
    size_t bytes;
} piece;

enum { PIECES = 4 };

static uint32_t pieces_of(piece out[PIECES], const gp_graph *graph, const gp_checkpoint *checkpoint,
                          gp_buffer *header)
{
    size_t blob = graph->blob_count * sizeof(float);
    uint32_t count = 0;

    out[count++] = (piece){ header->data, header->bytes };
    out[count++] = (piece){ checkpoint->parameters, blob };
    if (checkpoint->state_blobs > 0)
        out[count++] = (piece){ checkpoint->state, blob * checkpoint->state_blobs };
    if (checkpoint->best != NULL)
        out[count++] = (piece){ checkpoint->best, blob };
    return count;
}

static uint64_t pieces_bytes(const piece *pieces, uint32_t count)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++)
        bytes += pieces[i].bytes;
    return bytes;
}

/* Block checksums in a file, independent of the parts in which data are added. */
typedef struct block_sums {
    uint32_t *sum; /* [count] */
    uint32_t count;
    uint64_t position;
} block_sums;

static void sums_add(block_sums *sums, const unsigned char *data, size_t bytes)
{
    while (bytes > 0) {
        size_t left = BLOCK_BYTES - sums->position % BLOCK_BYTES, part = bytes < left ? bytes : left;
        uint32_t *sum = &sums->sum[sums->position / BLOCK_BYTES];

        *sum = gp_crc32c(*sum, data, part);
        data += part;
        bytes -= part;
        sums->position += part;
    }
}

static gp_status sums_init(block_sums *sums, uint64_t bytes, gp_error *err)
{
    uint64_t count = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;

    *sums = (block_sums){ .count = (uint32_t)count };
    if (count > BLOCKS_MAX)
        return gp_fail(err, GP_ELIMIT,
                       "a checkpoint of %" PRIu64 " bytes is too large: at most %d GiB are supported", bytes,
                       BLOCKS_MAX / 256);
    sums->sum = gp_calloc(count, sizeof(*sums->sum));
    return sums->sum != NULL ? GP_OK : gp_fail(err, GP_ENOMEM, "no memory for checksums");
}

/* ---- writing ---- */

/* A file with a temporary name. */
typedef struct draft {
    char path[1200];    /* final path */
    char scratch[1200]; /* temporary path; "": not created */
} draft;

/* Write a draft and sync it. The caller removes it after a failure. */
static gp_status draft_write(draft *out, const char *directory, const char *name, const piece *pieces,
                             uint32_t count, block_sums *sums, gp_error *err)
{
    uint64_t bytes = pieces_bytes(pieces, count);
    char scratch[1200];
    gp_status status = GP_OK;
    int fd, full;

    snprintf(out->path, sizeof(out->path), "%s/%s", directory, name);
    snprintf(scratch, sizeof(scratch), "%s/.tmp-%d-%s", directory, (int)getpid(), name);
    fd = open(scratch, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return gp_fail_errno(err, GP_EIO, "cannot create %s", scratch);
    strcpy(out->scratch, scratch);
    full = posix_fallocate(fd, 0, (off_t)bytes);
    if (full != 0) {
        errno = full;
        status = gp_fail_errno(err, GP_EIO, "no space for %s (%" PRIu64 " bytes)", out->path, bytes);
    }
    for (uint32_t i = 0; i < count && status == GP_OK; i++) {
        if (!gp_write_all(fd, pieces[i].data, pieces[i].bytes))
            status = gp_fail_errno(err, GP_EIO, "cannot write %s", out->path);
        if (sums != NULL)
            sums_add(sums, pieces[i].data, pieces[i].bytes);
        gp_fault_point("checkpoint");
    }
    if (status == GP_OK && fsync(fd) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot sync %s", out->path);
    if (close(fd) != 0 && status == GP_OK)
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", out->path);
    gp_fault_point("checkpoint-written");
    return status;
}

/* Rename a draft to its final path, and sync the directory. */
static gp_status draft_commit(draft *file, const char *directory, gp_error *err)
{
    gp_status status = gp_fence_check_process(err);

    if (status != GP_OK)
        return status;
    if (rename(file->scratch, file->path) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot rename %s to %s", file->scratch, file->path);
    file->scratch[0] = '\0';
    gp_fault_point("checkpoint-renamed");
    return gp_directory_sync(directory) ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot sync %s", directory);
}

static void draft_discard(const draft *file)
{
    if (file->scratch[0] != '\0')
        unlink(file->scratch);
}

/* Commit a checkpoint. First remove the record of an earlier checkpoint of the same step: it must
 * never describe the new tensors. */
static gp_status checkpoint_commit(draft *tensors, draft *record, const char *directory, gp_error *err)
{
    gp_status status = gp_fence_check_process(err);

    if (status != GP_OK)
        return status;
    bool replaces = unlink(record->path) == 0;

    if (!replaces && errno != ENOENT)
        return gp_fail_errno(err, GP_EIO, "cannot remove %s", record->path);
    if (replaces && !gp_directory_sync(directory))
        return gp_fail_errno(err, GP_EIO, "cannot sync %s", directory);
    status = draft_commit(tensors, directory, err);
    return status == GP_OK ? draft_commit(record, directory, err) : status;
}

static void put_hex(gp_json_writer *writer, const char *key, uint64_t value, int digits)
{
    char text[24];

    snprintf(text, sizeof(text), "%0*" PRIx64, digits, value);
    gp_json_put_text(writer, key, text);
}

static gp_status record_make(gp_buffer *out, const gp_checkpoint_frame *frame,
                             const gp_checkpoint *checkpoint, const block_sums *sums, uint64_t bytes,
                             gp_error *err)
{
    gp_json_writer writer;
    char zeros[GP_CHECKSUM_DIGITS + 1];

    gp_buffer_init(out, GP_CHECKPOINT_RECORD_BYTES_MAX);
    gp_json_writer_init(&writer, out, true);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_integer(&writer, "format", GP_CHECKPOINT_FORMAT);
    put_hex(&writer, "check", 0, GP_CHECKSUM_DIGITS);
    gp_json_put_integer(&writer, "step", (int64_t)checkpoint->progress.step);
    gp_json_put_integer(&writer, "epoch", checkpoint->progress.epoch);
    gp_json_put_integer(&writer, "first", checkpoint->progress.first);
    gp_json_put_integer(&writer, "optimizer_step", (int64_t)checkpoint->optim_step);

    /* null: no validation yet, or the validation has no such metric */
    gp_json_put_number(&writer, "best_loss", checkpoint->progress.best_loss);
    gp_json_put_number(&writer, "best_accuracy", checkpoint->progress.best_accuracy);
    gp_json_put_number(&writer, "best_rmse", checkpoint->progress.best_rmse);
    gp_json_put_integer(&writer, "no_better", checkpoint->progress.validations_since_best);
    if (checkpoint->progress.loss_scale.scale > 0) {
        gp_json_put_number(&writer, "loss_scale", checkpoint->progress.loss_scale.scale);
        gp_json_put_integer(&writer, "loss_scale_good", checkpoint->progress.loss_scale.good);
    }
    gp_json_put_bool(&writer, "is_best", checkpoint->is_best);
    gp_json_put_bool(&writer, "has_best", checkpoint->best != NULL);
    gp_json_put_integer(&writer, "workers", frame->world);
    gp_json_put_text(&writer, "network", frame->graph->spec->name);
    put_hex(&writer, "layout", gp_graph_layout_hash(frame->graph), 16);
    put_hex(&writer, "data", frame->data_fingerprint, 16);
    gp_json_begin_object(&writer, "options");
    gp_params_to_json(gp_train_options_table, frame->options, false, &writer);
    gp_json_end_object(&writer);
    if (frame->plans != NULL)
        gp_json_put_text(&writer, "plans", frame->plans);
    gp_json_put_integer(&writer, "bytes", (int64_t)bytes);
    gp_json_put_integer(&writer, "block_bytes", BLOCK_BYTES);
    gp_json_begin_array(&writer, "crc32c");
    for (uint32_t i = 0; i < sums->count; i++)
        put_hex(&writer, NULL, sums->sum[i], 8);
    gp_json_end_array(&writer);
    gp_json_end_object(&writer);
    gp_status status = gp_json_writer_finish(&writer, err);

    if (status == GP_OK)
        gp_checkpoint_set_checksum(out, gp_checkpoint_checksum(out, zeros));
    return status;
}

/* ---- pruning ---- */

/* Remove temporary files of writers that have exited; leave those of running writers. */
static void prune_scratch(const char *directory)
{
    DIR *folder = opendir(directory);
    char path[1200];

    for (struct dirent *entry = folder == NULL ? NULL : readdir(folder); entry != NULL;
         entry = readdir(folder)) {
        int pid;

        if (sscanf(entry->d_name, ".tmp-%d-", &pid) != 1 || pid == getpid())
            continue;
        snprintf(path, sizeof(path), "/proc/%d", pid);
        if (access(path, F_OK) == 0)
            continue;
        snprintf(path, sizeof(path), "%s/%.255s", directory, entry->d_name);
        unlink(path);
    }
    if (folder != NULL)
        closedir(folder);
}

/* Remove this run's checkpoints that are no longer needed. The newest two up to `step`, which was
 * just written, and the newest best one stay. Later steps of this run were written before it went
 * back to an older checkpoint; the run replaces them when it reaches them. Checkpoints of other
 * runs, and damaged ones, stay. */
static void prune(const char *directory, const char *run, uint64_t step)
{
    gp_checkpoint_list *steps = gp_malloc(sizeof(*steps));
    uint32_t kept = 0;
    bool best_seen = false;
    char path[1200];

    if (steps == NULL)
        return; /* the next checkpoint prunes */
    if (gp_checkpoint_list_steps(steps, directory, NULL) != GP_OK)
        steps->count = 0;
    for (uint32_t i = 0; i < steps->count; i++) {
        gp_json *record;

        if (steps->step[i] > step ||
            gp_checkpoint_read_record(&record, directory, steps->step[i], NULL) != GP_OK)
            continue;
        bool own = strcmp(gp_checkpoint_record_run(record), run) == 0 &&
                   gp_checkpoint_check_tensors(record, directory, steps->step[i], NULL) == GP_OK;
        bool best = own && !best_seen && gp_json_bool(gp_json_member(record, "is_best"), false);

        gp_json_free(record);
        best_seen = best_seen || best;
        if (own && ++kept > KEPT && !best) {
            snprintf(path, sizeof(path), "%s/%" PRIu64 ".json", directory, steps->step[i]);
            unlink(path); /* first: without the record the tensors are ignored */
            snprintf(path, sizeof(path), "%s/%" PRIu64 ".safetensors", directory, steps->step[i]);
            unlink(path);
        }
    }
    gp_free(steps);
    prune_scratch(directory);
}

/* Return whether a checkpoint belongs to another run, whose id is copied to `other`. A record that
 * cannot be read is not treated as foreign. */
static bool is_foreign(const char *directory, uint64_t step, const char *run, char other[GP_NAME_MAX])
{
    gp_json *record;

    if (gp_checkpoint_read_record(&record, directory, step, NULL) != GP_OK)
        return false;
    snprintf(other, GP_NAME_MAX, "%s", gp_checkpoint_record_run(record));
    gp_json_free(record);
    return strcmp(other, run) != 0;
}

gp_status gp_checkpoint_write(const char *directory, const gp_checkpoint_frame *frame,
                              const gp_checkpoint *checkpoint, gp_error *err)
{
    piece pieces[PIECES];
    gp_buffer header, record;
    block_sums sums = { 0 };
    draft tensors_file = { .scratch = "" }, record_file = { .scratch = "" };
    char name[40], other[GP_NAME_MAX];
    const char *run = frame->options->run_id;
    gp_status status = gp_fence_check_process(err); /* draft_commit() checks again, before each rename */

    if (status == GP_OK)
        status = gp_directory_make(directory, 0777, err);
    gp_buffer_init(&record, 0);
    gp_buffer_init(&header, 0);
    /* Refuse to replace the checkpoint of another run that started to use the directory at the same
     * time. */
    if (status == GP_OK && is_foreign(directory, checkpoint->progress.step, run, other))
        status = gp_fail(err, GP_EBUSY,
                         "%s/%" PRIu64 ".json belongs to another run (%s); use another checkpoint-path",
                         directory, checkpoint->progress.step, other);
    if (status == GP_OK)
        status = header_make(&header, frame->graph, checkpoint, err);
    uint32_t count = status == GP_OK ? pieces_of(pieces, frame->graph, checkpoint, &header) : 0;
    uint64_t bytes = pieces_bytes(pieces, count);

    if (status == GP_OK)
        status = sums_init(&sums, bytes, err);
    snprintf(name, sizeof(name), "%" PRIu64 ".safetensors", checkpoint->progress.step);
    if (status == GP_OK)
        status = draft_write(&tensors_file, directory, name, pieces, count, &sums, err);
    if (status == GP_OK)
        status = record_make(&record, frame, checkpoint, &sums, bytes, err);
    snprintf(name, sizeof(name), "%" PRIu64 ".json", checkpoint->progress.step);
    if (status == GP_OK)
        status =
            draft_write(&record_file, directory, name, &(piece){ record.data, record.bytes }, 1, NULL, err);
    if (status == GP_OK)
        status = checkpoint_commit(&tensors_file, &record_file, directory, err);
    draft_discard(&tensors_file);
    draft_discard(&record_file);
    if (status == GP_OK)
        prune(directory, run, checkpoint->progress.step);
    gp_free(sums.sum);
    gp_buffer_deinit(&record);
    gp_buffer_deinit(&header);
    return status;
}

/* ---- reading ---- */

static gp_status damaged(gp_error *err, const char *path, const char *how)
{
    return gp_fail(err, GP_ECORRUPT, "%s is damaged: %s", path, how);
}

/* Read the tensor file into the pieces and compare every block with the checksums in the record.
 * The header is compared, not read. */
static gp_status tensors_read(const char *path, const gp_json *record, const piece *pieces, uint32_t count,
                              gp_error *err)
{
    uint64_t bytes = pieces_bytes(pieces, count), at = 0;
    const gp_json *sums_wanted = gp_json_member(record, "crc32c");
    block_sums sums = { 0 };
    struct stat info;
    gp_status status = GP_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return gp_fail_errno(err, GP_ECORRUPT, "cannot open %s", path);
    if (fstat(fd, &info) != 0 || (uint64_t)info.st_size != bytes)
        status = gp_fail(err, GP_ECORRUPT, "%s is damaged: it has %lld bytes, must have %" PRIu64, path,
                         (long long)info.st_size, bytes);
    if (status == GP_OK)
        status = sums_init(&sums, bytes, err);
    if (status == GP_OK && gp_json_count(sums_wanted) != sums.count)
        status = damaged(err, path, "the checksums in its record differ");
    unsigned char *head = status == GP_OK ? gp_malloc(pieces[0].bytes) : NULL;

    if (status == GP_OK && head == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for the header of %s", path);
    for (uint32_t i = 0; i < count && status == GP_OK; i++) {
        unsigned char *into = i == 0 ? head : pieces[i].data;
        ssize_t got = gp_read_at(fd, into, pieces[i].bytes, at);

        if (got != (ssize_t)pieces[i].bytes)
            status = damaged(err, path, got >= 0 ? "it is truncated" : strerrordesc_np(errno));
        at += pieces[i].bytes;
        if (status == GP_OK)
            sums_add(&sums, into, pieces[i].bytes);
    }
    for (uint32_t i = 0; i < sums.count && status == GP_OK; i++) {
        char text[12];

        snprintf(text, sizeof(text), "%08" PRIx32, sums.sum[i]);
        if (strcmp(text, gp_json_text(gp_json_element(sums_wanted, i), "")) != 0)
            status = gp_fail(err, GP_ECORRUPT,
                             "%s is damaged: the checksum of block %" PRIu32 " of %" PRIu32 " differs", path,
                             i + 1, sums.count);
    }
    if (status == GP_OK && memcmp(head, pieces[0].data, pieces[0].bytes) != 0)
        status = damaged(err, path, "its header does not match the network");
    gp_free(head);
    gp_free(sums.sum);
    close(fd);
    return status;
}

static int64_t record_integer(const gp_json *record, const char *key)
{
    return gp_json_integer(gp_json_member(record, key), 0);
}

static void record_take(gp_checkpoint *checkpoint, const gp_json *record)
{
    gp_train_progress *progress = &checkpoint->progress;
    double scale = gp_json_number(gp_json_member(record, "loss_scale"), 0.0);

    progress->step = (uint64_t)record_integer(record, "step");
    progress->epoch = (uint32_t)record_integer(record, "epoch");
    progress->first = (uint32_t)record_integer(record, "first");
    progress->best_loss = gp_json_number(gp_json_member(record, "best_loss"), INFINITY);
    progress->best_accuracy = gp_json_number(gp_json_member(record, "best_accuracy"), NAN);
    progress->best_rmse = gp_json_number(gp_json_member(record, "best_rmse"), NAN);
    progress->validations_since_best = record_integer(record, "no_better");
    /* The checkpoint may have another precision, and then has no loss scale, or an unneeded one:
     * keep the initial scale. */
    if (progress->loss_scale.scale > 0 && scale > 0 && scale <= GP_LOSS_SCALE_MAX)
        progress->loss_scale =
            (gp_loss_scale){ .scale = scale, .good = (uint32_t)record_integer(record, "loss_scale_good") };
    checkpoint->optim_step = (uint64_t)record_integer(record, "optimizer_step");
    checkpoint->is_best = gp_json_bool(gp_json_member(record, "is_best"), false);
}

static gp_status checkpoint_load(gp_checkpoint *checkpoint, const gp_checkpoint_frame *frame,
                                 const char *directory, uint64_t step, gp_error *err)
{
    gp_checkpoint stored = *checkpoint;
    piece pieces[PIECES];
    gp_json *record;
    gp_buffer header;
    char path[1200], data[20];
    gp_error why;
    gp_status status = gp_checkpoint_read_record(&record, directory, step, &why);

    /* the checkpoint may be intact: do not fall back to an older one */
    if (status == GP_ENOMEM || status == GP_ELIMIT)
        return gp_fail(err, status, "%s", why.message);
    if (status != GP_OK)
        return gp_fail(err, GP_ECORRUPT, "%s", why.message);
    snprintf(path, sizeof(path), "%s/%" PRIu64 ".json", directory, step);
    status = gp_checkpoint_check_record(record, frame->graph, frame->options, path, err);
    snprintf(data, sizeof(data), "%016" PRIx64, frame->data_fingerprint);
    if (status == GP_OK && strcmp(data, gp_json_text(gp_json_member(record, "data"), "")) != 0)
        status = gp_fail(
            err, GP_EINVAL,
            "%s was trained on other data: its data fingerprint is %s, the fingerprint of this data is %s",
            path, gp_json_text(gp_json_member(record, "data"), "?"), data);
    /* The file may have best weights that are not wanted, or lack them. */
    bool has_best = gp_json_bool(gp_json_member(record, "has_best"), false);
    float *scratch = NULL;

    if (status == GP_OK && has_best && checkpoint->best == NULL) {
        scratch = gp_malloc(frame->graph->blob_count * sizeof(float));
        if (scratch == NULL)
            status = gp_fail(err, GP_ENOMEM, "no memory to read %s", path);
    }
    stored.best = !has_best ? NULL : checkpoint->best != NULL ? checkpoint->best : scratch;
    gp_buffer_init(&header, 0);
    if (status == GP_OK)
        status = header_make(&header, frame->graph, &stored, err);
    snprintf(path, sizeof(path), "%s/%" PRIu64 ".safetensors", directory, step);
    if (status == GP_OK)
        status = tensors_read(path, record, pieces, pieces_of(pieces, frame->graph, &stored, &header), err);
    if (status == GP_OK) {
        const char *plans = gp_json_text(gp_json_member(record, "plans"), "");

        record_take(checkpoint, record);

        /* NULL (out of memory): the engines are chosen again */
        checkpoint->plans = plans[0] == '\0' ? NULL : gp_strdup(plans);
    }
    /* The best weights were not kept so far: keep them from now on. */
    if (status == GP_OK && checkpoint->best != NULL && !has_best) {
        checkpoint->progress.best_loss = INFINITY;
        checkpoint->progress.validations_since_best = 0;
    }
    gp_buffer_deinit(&header);
    gp_free(scratch);
    gp_json_free(record);
    return status;
}

gp_status gp_checkpoint_read(gp_checkpoint *checkpoint, const gp_checkpoint_frame *frame, const char *path,
                             char damaged[240], gp_error *err)
{
    gp_checkpoint_list *steps = gp_malloc(sizeof(*steps));
    const char *run = frame->options->run_id;
    char directory[1024], other[GP_NAME_MAX];
    gp_status status = GP_OK;
    bool one;

    damaged[0] = '\0';
    if (steps == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to look for checkpoints");
    steps->count = 1;
    one = gp_checkpoint_split_path(path, directory, &steps->step[0]);
    if (!one)
        status = gp_checkpoint_list_steps(steps, directory, err);
    if (status == GP_OK)
        status = gp_fail(err, GP_ENOENT, "no checkpoint in %s", directory);
    for (uint32_t i = 0; i < steps->count; i++) {
        gp_error why;

        /* without a run id, all checkpoints are read */
        if (!one && run[0] != '\0' && is_foreign(directory, steps->step[i], run, other))
            continue;
        status = checkpoint_load(checkpoint, frame, directory, steps->step[i], &why);
        if (status != GP_OK)
            gp_fail(err, status, "%s", why.message);
        if (status != GP_ECORRUPT)
            break;
        if (damaged[0] == '\0')
            snprintf(damaged, 240, "%.239s", why.message);
    }
    gp_free(steps);
    return status;
}
