/* Encode and decode command specs and packets (runner_wire.h). */
#include "proto/local/runner_wire.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/buffer.h"
#include "common/base/system/file.h"
#include "common/base/system/packet.h"

static_assert(sizeof(gp_runner_request) == 24 && offsetof(gp_runner_request, grace_ms) == 20, "layout");
static_assert(sizeof(gp_runner_answer) == 488 && offsetof(gp_runner_answer, seconds) == 40 &&
                  offsetof(gp_runner_answer, text) == 72,
              "layout");

/* ---- specs: head, directory, arguments, variables; each text ends with a NUL ---- */

typedef struct spec_head {
    uint32_t magic, mask;
    uint32_t argument_count, variable_count;
    uint64_t files_max;
} spec_head;

/* Append a NULL-terminated list of strings and set *count. GP_ELIMIT: too many strings. */
static gp_status words_append(gp_buffer *buffer, const char *const *words, uint32_t *count, gp_error *err)
{
    gp_status status = GP_OK;

    *count = 0;
    for (; *words != NULL && status == GP_OK; words++) {
        if (++*count > GP_RUNNER_WORDS_MAX)
            return gp_fail(err, GP_ELIMIT, "a command has more than %d arguments or variables",
                           GP_RUNNER_WORDS_MAX);
        status = gp_buffer_append(buffer, *words, strlen(*words) + 1, err);
    }
    return status;
}

/* Append a spec to the buffer. The head is written twice: as a placeholder, and at the end with the
 * counts. */
static gp_status spec_encode(gp_buffer *buffer, const gp_runner_spec *spec, gp_error *err)
{
    spec_head head = { .magic = GP_RUNNER_MAGIC, .mask = spec->mask, .files_max = spec->files_max };
    gp_status status = gp_buffer_append(buffer, &head, sizeof(head), err);

    if (spec->directory[0] != '/')
        return gp_fail(err, GP_EINVAL, "the working directory '%s' is not an absolute path", spec->directory);
    if (status == GP_OK)
        status = gp_buffer_append(buffer, spec->directory, strlen(spec->directory) + 1, err);
    if (status == GP_OK)
        status = words_append(buffer, spec->arguments, &head.argument_count, err);
    if (status == GP_OK)
        status = words_append(buffer, spec->environment, &head.variable_count, err);
    if (status == GP_OK && head.argument_count == 0)
        return gp_fail(err, GP_EINVAL, "the command is empty");
    if (status == GP_OK)
        memcpy(buffer->data, &head, sizeof(head));
    return status == GP_ELIMIT
               ? gp_fail(err, GP_ELIMIT, "the command and its environment have more than %d MiB",
                         GP_RUNNER_SPEC_BYTES_MAX >> 20)
               : status;
}

gp_status gp_runner_spec_write(int *fd, uint32_t *bytes, const gp_runner_spec *spec, gp_error *err)
{
    gp_buffer buffer;
    int made = -1;

    gp_buffer_init(&buffer, GP_RUNNER_SPEC_BYTES_MAX);
    gp_status status = spec_encode(&buffer, spec, err);

    if (status == GP_OK)
        made = memfd_create("gradpool-command", MFD_CLOEXEC);
    if (status == GP_OK && (made < 0 || !gp_write_all(made, buffer.data, buffer.bytes)))
        status = gp_fail_errno(err, GP_EIO, "cannot write the command to shared memory");
    if (status == GP_OK) {
        *fd = made;
        *bytes = (uint32_t)buffer.bytes;
    } else if (made >= 0) {
        close(made);
    }
    gp_buffer_deinit(&buffer);
    return status;
}

/* Return the next string and advance *at. NULL: no terminated string is left. */
static char *word_take(char **at, const char *end)
{
    char *word = *at, *stop = word < end ? memchr(word, '\0', (size_t)(end - word)) : NULL;

    if (stop == NULL)
        return NULL;
    *at = stop + 1;
    return word;
}

/* Set list[0..count) to the next strings, and list[count] to NULL. Return false if one is missing,
 * or if `variables` is set and one has no '='. */
static bool words_take(const char **list, uint32_t count, char **at, const char *end, bool variables)
{
    for (uint32_t i = 0; i < count; i++) {
        list[i] = word_take(at, end);
        if (list[i] == NULL || (variables && (list[i][0] == '\0' || strchr(list[i], '=') == NULL)))
            return false;
    }
    list[count] = NULL;
    return true;
}

/* Point the members of *out into `text`; `lists` has room for both string lists and their NULL
 * terminators. GP_EPROTO: the text does not match the head. */
static gp_status spec_decode(gp_runner_spec *out, const spec_head *head, const char **lists, char *text,
                             size_t bytes, gp_error *err)
{
    char *at = text;
    const char *end = text + bytes;

    *out = (gp_runner_spec){ .directory = word_take(&at, end),
                             .arguments = lists,
                             .environment = lists + head->argument_count + 1,
                             .mask = head->mask,
                             .files_max = head->files_max };
    if (out->directory == NULL || out->directory[0] != '/' ||
        !words_take(lists, head->argument_count, &at, end, false) || lists[0][0] == '\0' ||
        !words_take(lists + head->argument_count + 1, head->variable_count, &at, end, true) || at != end)
        return gp_fail(err, GP_EPROTO,
                       "malformed command: its %zu bytes are not %u arguments and %u variables", bytes,
                       head->argument_count, head->variable_count);
    return GP_OK;
}

/* Use pread(), not mmap(): if the client truncates the file, mmap() would raise SIGBUS here. */
gp_status gp_runner_spec_read(gp_runner_spec *out, void **memory, int fd, uint32_t bytes, gp_error *err)
{
    spec_head head;
    size_t text_bytes = bytes - sizeof(head), list_bytes;
    gp_status status;

    if (bytes < sizeof(head) || bytes > GP_RUNNER_SPEC_BYTES_MAX)
        return gp_fail(err, GP_EPROTO, "invalid command size of %u bytes: must be between %zu and %d", bytes,
                       sizeof(head), GP_RUNNER_SPEC_BYTES_MAX);
    if (pread(fd, &head, sizeof(head), 0) != sizeof(head) || head.magic != GP_RUNNER_MAGIC ||
        head.argument_count == 0 || head.argument_count > GP_RUNNER_WORDS_MAX ||
        head.variable_count > GP_RUNNER_WORDS_MAX || head.mask > 0777)
        return gp_fail(err, GP_EPROTO, "malformed header of a command");
    list_bytes = ((size_t)head.argument_count + head.variable_count + 2) * sizeof(char *);
    char *block = gp_malloc(list_bytes + text_bytes + 1);

    if (block == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a command of %u bytes", bytes);
    if (pread(fd, block + list_bytes, text_bytes, sizeof(head)) != (ssize_t)text_bytes)
        status = gp_fail(err, GP_EPROTO, "malformed command: its file is shorter than %u bytes", bytes);
    else
        status = spec_decode(out, &head, (const char **)(void *)block, block + list_bytes, text_bytes, err);
    if (status == GP_OK)
        *memory = block;
    else
        gp_free(block);
    return status;
}

/* ---- packets ---- */

/* Send a packet with fd_count descriptors. GP_EBUSY: the queue is full. GP_EPEER: the peer
 * exited. */
static gp_status packet_send(int socket, const void *data, size_t bytes, const int *fds, uint32_t fd_count,
                             gp_error *err)
{
    if (gp_packet_send(socket, data, bytes, fds, fd_count) >= 0)
        return GP_OK;
    if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS)
        return gp_fail(err, GP_EBUSY, "the queue of the runner's socket is full");
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
        return gp_fail(err, GP_EPEER, "the peer closed the runner's socket");
    return gp_fail_errno(err, GP_EIO, "cannot send %zu bytes on the runner's socket", bytes);
}

/* Receive a packet with 0 or GP_RUNNER_FDS descriptors. With fds NULL, received descriptors are
 * closed. Any other number of descriptors is an error, and all are closed. */
static gp_status packet_receive(int socket, void *data, size_t bytes, int *fds, uint32_t *fd_count,
                                gp_error *err)
{
    gp_packet_fds seen;
    bool cut;
    ssize_t got = gp_packet_receive(socket, data, bytes, MSG_DONTWAIT, &seen, &cut);

    /* If the peer exits with unread packets from this side, the first receive fails with
     * ECONNRESET. Packets that the peer had sent can still be read after that. */
    if (got < 0 && errno == ECONNRESET)
        got = gp_packet_receive(socket, data, bytes, MSG_DONTWAIT, &seen, &cut);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return gp_fail(err, GP_ETIMEDOUT, "no message is pending on the runner's socket");
    if (got == 0 || (got < 0 && (errno == ECONNRESET || errno == ENOTCONN)))
        return gp_fail(err, GP_EPEER, "the peer closed the runner's socket");
    if (got < 0)
        return gp_fail_errno(err, GP_EIO, "cannot receive from the runner's socket");
    const uint32_t count = seen.count;
    bool whole = (size_t)got == bytes && !cut;

    if (whole && fds != NULL && (count == 0 || count == GP_RUNNER_FDS)) {
        memcpy(fds, seen.fd, sizeof(int) * count);
        *fd_count = count;
        return GP_OK;
    }
    gp_packet_fds_close(&seen);
    return whole && fds == NULL
               ? GP_OK
               : gp_fail(err, GP_EPROTO,
                         "malformed message on the runner's socket: %zd bytes, %u descriptors", got, count);
}

gp_status gp_runner_ask_send(int socket, gp_runner_request *request, const int *fds, uint32_t fd_count,
                             gp_error *err)
{
    request->magic = GP_RUNNER_MAGIC;
    return packet_send(socket, request, sizeof(*request), fds, fd_count, err);
}

gp_status gp_runner_answer_send(int socket, gp_runner_answer *answer, gp_error *err)
{
    answer->magic = GP_RUNNER_MAGIC;
    return packet_send(socket, answer, sizeof(*answer), NULL, 0, err);
}

gp_status gp_runner_ask_receive(int socket, gp_runner_request *request, int fds[GP_RUNNER_FDS],
                                uint32_t *fd_count, gp_error *err)
{
    gp_runner_request got;
    uint32_t count = 0;
    gp_status status = packet_receive(socket, &got, sizeof(got), fds, &count, err);

    if (status != GP_OK)
        return status;
    bool start = got.kind == GP_RUNNER_START;

    if (got.magic == GP_RUNNER_MAGIC && got.job != 0 && (start || got.kind == GP_RUNNER_KILL) &&
        got.grace_ms <= GP_RUNNER_GRACE_MS_MAX && count == (start ? GP_RUNNER_FDS : 0)) {
        *request = got;
        *fd_count = count;
        return GP_OK;
    }
    for (uint32_t i = 0; i < count; i++)
        close(fds[i]);
    return gp_fail(err, GP_EPROTO, "malformed request to the runner: kind %u, %u descriptors", got.kind,
                   count);
}

gp_status gp_runner_answer_receive(int socket, gp_runner_answer *answer, gp_error *err)
{
    gp_runner_answer got;
    gp_status status = packet_receive(socket, &got, sizeof(got), NULL, NULL, err);

    if (status != GP_OK)
        return status;
    if (got.magic != GP_RUNNER_MAGIC || got.kind < GP_RUNNER_STARTED || got.kind > GP_RUNNER_FAILED ||
        !gp_status_known((long)got.status) || memchr(got.text, 0, sizeof(got.text)) == NULL)
        return gp_fail(err, GP_EPROTO, "malformed reply from the runner: kind %u", got.kind);
    *answer = got;
    return GP_OK;
}
