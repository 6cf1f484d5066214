#include "client/runs/tensorboard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/buffer.h"
#include "common/base/memory/crc32c.h"
#include "common/base/printable.h"

/* TRIES: attempts to find an unused file name. EVENT_MAX: size limit of one event. FLUSH_BYTES:
 * buffered events are written when they exceed this size. */
enum { TRIES = 1000, EVENT_MAX = 1 << 20, FLUSH_BYTES = 64 << 10, BUFFER_MAX = EVENT_MAX + FLUSH_BYTES + 64 };

struct tensorboard {
    int fd;
    gp_buffer pending; /* complete records that are not in the file yet */
    uint64_t pending_count;
    int64_t size; /* bytes of complete records in the file */
    uint64_t lost;
    int problem; /* last errno */
};

/* ---- protobuf wire format ---- */

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* A message under construction. Nested messages are written in place: message_begin() leaves room
 * for the length, and message_end() fills it in. */
typedef struct message {
    gp_buffer bytes;
    bool failed; /* out of memory, or longer than EVENT_MAX */
} message;

static void put(message *m, const void *data, size_t bytes)
{
    m->failed |= gp_buffer_append(&m->bytes, data, bytes, NULL) != GP_OK;
}

static void put_varint(message *m, uint64_t value)
{
    uint8_t bytes[10];
    size_t count = 0;

    for (; value >= 0x80; value >>= 7)
        bytes[count++] = (uint8_t)(value | 0x80);
    bytes[count++] = (uint8_t)value;
    put(m, bytes, count);
}

static void put_key(message *m, unsigned field, unsigned wire)
{
    put_varint(m, field << 3 | wire);
}

static void put_integer(message *m, unsigned field, int64_t value)
{
    put_key(m, field, WIRE_VARINT);
    put_varint(m, (uint64_t)value);
}

static void put_little_endian(message *m, uint64_t value, size_t bytes)
{
    uint8_t data[8];

    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(value >> (8 * i));
    put(m, data, bytes);
}

static void put_double(message *m, unsigned field, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    put_key(m, field, WIRE_64);
    put_little_endian(m, bits, 8);
}

static void put_float(message *m, unsigned field, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    put_key(m, field, WIRE_32);
    put_little_endian(m, bits, 4);
}

/* Write a text, cut to at most bytes_max bytes. '?' replaces bytes that are not UTF-8, such as
 * those of a character that is cut: readers would refuse the whole event. */
static void put_text(message *m, unsigned field, const char *text, size_t bytes_max)
{
    const size_t bytes = strnlen(text, bytes_max);

    put_key(m, field, WIRE_BYTES);
    put_varint(m, bytes);
    put(m, text, bytes);
    if (!m->failed)
        gp_utf8_clean((char *)m->bytes.data + m->bytes.bytes - bytes, bytes);
}

/* Bytes reserved for the length of a nested message. Padded varints are valid: protobuf readers
 * accept up to ten bytes. */
enum { LENGTH_BYTES = 4 };

/* Begin a nested message; return the position for message_end(). */
static size_t message_begin(message *m, unsigned field)
{
    static const uint8_t room[LENGTH_BYTES];

    put_key(m, field, WIRE_BYTES);
    put(m, room, sizeof(room));
    return m->bytes.bytes;
}

static void message_end(message *m, size_t begin)
{
    const size_t bytes = m->bytes.bytes - begin;

    if (m->failed)
        return;
    for (size_t i = 0; i < LENGTH_BYTES; i++)
        m->bytes.data[begin - LENGTH_BYTES + i] =
            (uint8_t)((bytes >> (7 * i) & 0x7f) | (i + 1 < LENGTH_BYTES ? 0x80 : 0));
}

/* ---- messages of TensorFlow and TensorBoard ---- */

/* Field numbers of the messages, from the .proto files. */
enum {
    EVENT_WALL_TIME = 1,
    EVENT_STEP = 2,
    EVENT_FILE_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_SESSION_LOG = 7,
    SESSION_LOG_STATUS = 1, /* START = 1 */
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2,
    VALUE_TENSOR = 8,
    VALUE_METADATA = 9,
    METADATA_PLUGIN = 1,
    METADATA_DATA_CLASS = 4, /* TENSOR = 2 */
    PLUGIN_NAME = 1,
    PLUGIN_CONTENT = 2,
    TENSOR_TYPE = 1, /* DT_FLOAT = 1, DT_STRING = 7 */
    TENSOR_SHAPE = 2,
    TENSOR_STRING = 8,
    SHAPE_DIM = 2,
    DIM_SIZE = 1,
    /* hparams */
    HPARAMS_EXPERIMENT = 2,
    HPARAMS_SESSION_START = 3,
    HPARAMS_SESSION_END = 4,
    EXPERIMENT_CREATED = 3,
    EXPERIMENT_HPARAM = 4,
    EXPERIMENT_METRIC = 5,
    HPARAM_NAME = 1,
    HPARAM_TYPE = 4, /* STRING = 1, BOOL = 2, FLOAT64 = 3 */
    METRIC_NAME = 1,
    METRIC_NAME_TAG = 2,
    START_HPARAMS = 1,
    START_GROUP = 4,
    START_TIME = 5,
    END_STATUS = 1,
    END_TIME = 2,
    MAP_KEY = 1,
    MAP_VALUE = 2,
    STRUCT_NUMBER = 2, /* google.protobuf.Value */
    STRUCT_STRING = 3,
    STRUCT_BOOL = 4,
};

static void event_begin(message *m, int64_t step, double wall_s)
{
    *m = (message){ 0 };
    gp_buffer_init(&m->bytes, EVENT_MAX);
    put_double(m, EVENT_WALL_TIME, wall_s);
    if (step != 0)
        put_integer(m, EVENT_STEP, step);
}

/* Return the CRC-32C as TFRecords store it: rotated, so that the CRC of data that contains a CRC is
 * still useful. */
static uint32_t masked_crc(const void *data, size_t bytes)
{
    const uint32_t crc = gp_crc32c(0, data, bytes);

    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void lose(tensorboard *board, uint64_t count, int problem)
{
    board->lost += count;
    board->problem = problem;
}

/* Append the event as a record, and free the message. */
static void event_end(tensorboard *board, message *m)
{
    message record = { .failed = m->failed };
    uint64_t length = m->bytes.bytes;

    if (!m->failed && gp_buffer_reserve(&board->pending, length + 16, NULL) == GP_OK) {
        record.bytes = board->pending;
        put_little_endian(&record, length, 8);
        put_little_endian(&record, masked_crc(record.bytes.data + record.bytes.bytes - 8, 8), 4);
        put(&record, m->bytes.data, length);
        put_little_endian(&record, masked_crc(m->bytes.data, length), 4);
        board->pending = record.bytes;
        board->pending_count++;
    } else {
        lose(board, 1, ENOMEM);
    }
    gp_buffer_deinit(&m->bytes);
    if (board->pending.bytes >= FLUSH_BYTES)
        tensorboard_flush(board);
}

/* ---- files ---- */

/* Return the time in the name of a new file: now, or later than the names of all files in the
 * folder. Readers take the files in the order of their names, but the clock may have gone back
 * since an earlier attempt. */
static long long name_time(const char *folder)
{
    long long newest = (long long)time(NULL), seconds;
    DIR *dir = opendir(folder);
    struct dirent *entry;

    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (sscanf(entry->d_name, "events.out.tfevents.%10lld.", &seconds) == 1 && seconds >= newest)
            newest = seconds + 1;
    if (dir != NULL)
        closedir(dir);
    return newest;
}

static gp_status file_create(tensorboard *board, const char *folder, gp_error *err)
{
    char host[256] = "localhost", path[4400];
    const long long seconds = name_time(folder);

    gethostname(host, sizeof(host) - 1);
    for (char *c = host; *c != '\0'; c++)
        if (*c == '/')
            *c = '_';
    for (int i = 0; i < TRIES; i++) {
        if ((size_t)snprintf(path, sizeof(path), "%s/events.out.tfevents.%lld.%s.%d.%d", folder, seconds,
                             host, (int)getpid(), i) >= sizeof(path))
            return gp_fail(err, GP_ELIMIT, "the path %.60s... is too long", folder);
        board->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_APPEND, 0666);
        if (board->fd >= 0)
            return GP_OK;
        if (errno != EEXIST)
            break;
    }
    return gp_fail_errno(err, GP_EIO, "cannot create %s", path);
}

gp_status tensorboard_open(tensorboard **out, const char *folder, gp_error *err)
{
    tensorboard *board = gp_calloc(1, sizeof(*board));
    struct timespec now;
    message m;
    gp_status status;

    *out = NULL;
    if (board == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for an event file");
    status = file_create(board, folder, err);
    if (status != GP_OK) {
        gp_free(board);
        return status;
    }
    gp_buffer_init(&board->pending, BUFFER_MAX);
    clock_gettime(CLOCK_REALTIME, &now);
    event_begin(&m, 0, (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
    put_text(&m, EVENT_FILE_VERSION, "brain.Event:2", TENSORBOARD_TEXT_MAX);
    event_end(board, &m);
    tensorboard_flush(board);
    *out = board;
    return GP_OK;
}

void tensorboard_flush(tensorboard *board)
{
    size_t done = 0;

    while (done < board->pending.bytes) {
        const ssize_t got = write(board->fd, board->pending.data + done, board->pending.bytes - done);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            /* Remove the part of a record that was written: readers stop at a damaged record. */
            lose(board, board->pending_count, got < 0 ? errno : ENOSPC);
            if (ftruncate(board->fd, board->size) != 0)
                board->problem = errno;
            done = 0;
            break;
        }
        done += (size_t)got;
    }
    board->size += (int64_t)done;
    gp_buffer_clear(&board->pending);
    board->pending_count = 0;
}

uint64_t tensorboard_close(tensorboard *board, int *problem)
{
    uint64_t lost;

    if (board == NULL)
        return 0;
    tensorboard_flush(board);
    if (close(board->fd) != 0)
        lose(board, 1, errno);
    lost = board->lost;
    if (lost > 0)
        *problem = board->problem;
    gp_buffer_deinit(&board->pending);
    gp_free(board);
    return lost;
}

/* ---- events ---- */

void tensorboard_resume(tensorboard *board, int64_t step, double wall_s)
{
    message m;
    size_t session;

    event_begin(&m, step, wall_s);
    session = message_begin(&m, EVENT_SESSION_LOG);
    put_integer(&m, SESSION_LOG_STATUS, 1);
    message_end(&m, session);
    event_end(board, &m);
}

void tensorboard_scalar(tensorboard *board, const char *tag, int64_t step, double wall_s, double value)
{
    message m;
    size_t summary, entry;

    event_begin(&m, step, wall_s);
    summary = message_begin(&m, EVENT_SUMMARY);
    entry = message_begin(&m, SUMMARY_VALUE);
    put_text(&m, VALUE_TAG, tag, TENSORBOARD_TAG_MAX);
    put_float(&m, VALUE_SIMPLE, (float)value);
    message_end(&m, entry);
    message_end(&m, summary);
    event_end(board, &m);
}

void tensorboard_text(tensorboard *board, const char *tag, int64_t step, double wall_s, const char *text)
{
    message m;
    size_t summary, entry, metadata, plugin, tensor, shape, dim;

    event_begin(&m, step, wall_s);
    summary = message_begin(&m, EVENT_SUMMARY);
    entry = message_begin(&m, SUMMARY_VALUE);
    put_text(&m, VALUE_TAG, tag, TENSORBOARD_TAG_MAX);
    metadata = message_begin(&m, VALUE_METADATA);
    plugin = message_begin(&m, METADATA_PLUGIN);
    put_text(&m, PLUGIN_NAME, "text", TENSORBOARD_TEXT_MAX);
    message_end(&m, plugin);
    put_integer(&m, METADATA_DATA_CLASS, 2);
    message_end(&m, metadata);
    tensor = message_begin(&m, VALUE_TENSOR);
    put_integer(&m, TENSOR_TYPE, 7);
    shape = message_begin(&m, TENSOR_SHAPE);
    dim = message_begin(&m, SHAPE_DIM);
    put_integer(&m, DIM_SIZE, 1);
    message_end(&m, dim);
    message_end(&m, shape);
    put_text(&m, TENSOR_STRING, text, TENSORBOARD_TEXT_MAX);
    message_end(&m, tensor);
    message_end(&m, entry);
    message_end(&m, summary);
    event_end(board, &m);
}

/* An event for the hyperparameter plugin: its message is the content of the plugin metadata. */
typedef struct hparams_event {
    message m;
    size_t summary, entry, metadata, plugin, content, inner;
} hparams_event;

static void hparams_begin(hparams_event *e, const char *tag, unsigned field, double wall_s)
{
    event_begin(&e->m, 0, wall_s);
    e->summary = message_begin(&e->m, EVENT_SUMMARY);
    e->entry = message_begin(&e->m, SUMMARY_VALUE);
    put_text(&e->m, VALUE_TAG, tag, TENSORBOARD_TEXT_MAX);
    e->metadata = message_begin(&e->m, VALUE_METADATA);
    put_integer(&e->m, METADATA_DATA_CLASS, 2);
    e->plugin = message_begin(&e->m, METADATA_PLUGIN);
    put_text(&e->m, PLUGIN_NAME, "hparams", TENSORBOARD_TEXT_MAX);
    e->content = message_begin(&e->m, PLUGIN_CONTENT);
    e->inner = message_begin(&e->m, field);
}

static void hparams_end(tensorboard *board, hparams_event *e)
{
    size_t tensor, shape;

    message_end(&e->m, e->inner);
    message_end(&e->m, e->content);
    message_end(&e->m, e->plugin);
    message_end(&e->m, e->metadata);
    /* The plugin requires a tensor: a float scalar without a value. */
    tensor = message_begin(&e->m, VALUE_TENSOR);
    put_integer(&e->m, TENSOR_TYPE, 1);
    shape = message_begin(&e->m, TENSOR_SHAPE);
    message_end(&e->m, shape);
    message_end(&e->m, tensor);
    message_end(&e->m, e->entry);
    message_end(&e->m, e->summary);
    event_end(board, &e->m);
}

/* Write the columns of the table. */
static void write_experiment(tensorboard *board, double wall_s, const tensorboard_hparam *hparams,
                             uint32_t hparam_count, const char *const *metrics, uint32_t metric_count)
{
    static const int64_t types[] = {
        [TENSORBOARD_TEXT] = 1, [TENSORBOARD_BOOL] = 2, [TENSORBOARD_NUMBER] = 3
    };
    hparams_event e;

    hparams_begin(&e, "_hparams_/experiment", HPARAMS_EXPERIMENT, wall_s);
    put_double(&e.m, EXPERIMENT_CREATED, wall_s);
    for (uint32_t i = 0; i < hparam_count; i++) {
        const size_t info = message_begin(&e.m, EXPERIMENT_HPARAM);

        put_text(&e.m, HPARAM_NAME, hparams[i].name, TENSORBOARD_TAG_MAX);
        put_integer(&e.m, HPARAM_TYPE, types[hparams[i].type]);
        message_end(&e.m, info);
    }
    for (uint32_t i = 0; i < metric_count; i++) {
        const size_t info = message_begin(&e.m, EXPERIMENT_METRIC), name = message_begin(&e.m, METRIC_NAME);

        put_text(&e.m, METRIC_NAME_TAG, metrics[i], TENSORBOARD_TAG_MAX);
        message_end(&e.m, name);
        message_end(&e.m, info);
    }
    hparams_end(board, &e);
}

static void put_hparam(message *m, const tensorboard_hparam *hparam)
{
    const size_t pair = message_begin(m, START_HPARAMS);
    size_t value;

    put_text(m, MAP_KEY, hparam->name, TENSORBOARD_TAG_MAX);
    value = message_begin(m, MAP_VALUE);
    if (hparam->type == TENSORBOARD_TEXT)
        put_text(m, STRUCT_STRING, hparam->text, TENSORBOARD_TAG_MAX);
    else if (hparam->type == TENSORBOARD_BOOL)
        put_integer(m, STRUCT_BOOL, hparam->number != 0);
    else
        put_double(m, STRUCT_NUMBER, hparam->number);
    message_end(m, value);
    message_end(m, pair);
}

void tensorboard_hparams(tensorboard *board, const char *group, double wall_s,
                         const tensorboard_hparam *hparams, uint32_t hparam_count, const char *const *metrics,
                         uint32_t metric_count)
{
    hparams_event e;

    if (hparam_count > TENSORBOARD_HPARAMS_MAX)
        hparam_count = TENSORBOARD_HPARAMS_MAX;
    if (metric_count > TENSORBOARD_HPARAMS_MAX)
        metric_count = TENSORBOARD_HPARAMS_MAX;
    write_experiment(board, wall_s, hparams, hparam_count, metrics, metric_count);
    hparams_begin(&e, "_hparams_/session_start_info", HPARAMS_SESSION_START, wall_s);
    for (uint32_t i = 0; i < hparam_count; i++)
        put_hparam(&e.m, &hparams[i]);
    put_text(&e.m, START_GROUP, group, TENSORBOARD_TEXT_MAX);
    put_double(&e.m, START_TIME, wall_s);
    hparams_end(board, &e);
}

void tensorboard_end_session(tensorboard *board, double wall_s, tensorboard_end end)
{
    hparams_event e;

    hparams_begin(&e, "_hparams_/session_end_info", HPARAMS_SESSION_END, wall_s);
    put_integer(&e.m, END_STATUS, end);
    put_double(&e.m, END_TIME, wall_s);
    hparams_end(board, &e);
}
