/* Collect job output and print it: whole outputs from temporary files, or lines from pipes.
 * output.h describes both modes. */
#include "client/cli/run/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"

enum { STREAMS = 2, COPY_BYTES = 128 << 10, REPORT_BYTES_MAX = 64 << 20, SAY_BYTES = 600 };

/* Poll interval for interrupts while standard output is full. */
enum { LOOK_MS = 200 };

/* Standard output or standard error of a job. */
typedef struct stream {
    int fd; /* temporary file, or reading end of the pipe; -1: none */
    /* WHOLE: contents of a small file, which was closed; LINES: an incomplete line */
    gp_buffer text;
    bool broken; /* the last piece written did not end with a newline */
} stream;

struct output_job {
    cli_output *output;
    char *tag;
    void *subject; /* report subject; owned; NULL: none */
    stream streams[STREAMS];
    bool ended;     /* output_end() was called */
    uint32_t files; /* temporary files that it holds while it waits to be printed */
    TAILQ_ENTRY(output_job) queue;
};

/* Output state for a run; a job queue in output_begin() order. */
struct cli_output {
    output_options options;
    TAILQ_HEAD(output_queue, output_job) jobs; /* WHOLE: not printed yet; LINES: running */
    uint32_t count;
    uint32_t files; /* temporary files held by finished jobs that wait to be printed */
    char *copy;     /* COPY_BYTES; scratch buffer */
};

gp_status output_new(cli_output **out, const output_options *options, gp_error *err)
{
    cli_output *output = gp_calloc(1, sizeof(*output));

    if (output != NULL)
        output->copy = gp_malloc(COPY_BYTES);
    if (output == NULL || output->copy == NULL) {
        gp_free(output);
        return gp_fail(err, GP_ENOMEM, "no memory for the commands' output");
    }
    output->options = *options;
    TAILQ_INIT(&output->jobs);
    *out = output;
    return GP_OK;
}

/* Close a stream and drop unprinted text. */
static void stream_close(stream *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    gp_buffer_deinit(&s->text);
    s->broken = false;
}

/* Remove a job from the queue and free it. */
static void job_free(output_job *job)
{
    TAILQ_REMOVE(&job->output->jobs, job, queue);
    job->output->count--;
    job->output->files -= job->files;
    for (int i = 0; i < STREAMS; i++)
        stream_close(&job->streams[i]);
    gp_free(job->tag);
    if (job->subject != NULL)
        job->output->options.subject_free(job->subject);
    gp_free(job);
}

void output_free(cli_output *output)
{
    if (output == NULL)
        return;
    for (output_job *job; (job = TAILQ_FIRST(&output->jobs)) != NULL;)
        job_free(job);
    gp_free(output->copy);
    gp_free(output);
}

bool output_room(const cli_output *output)
{
    return output->count < OUTPUT_AHEAD_MAX && output->files < OUTPUT_FILES_MAX;
}

gp_status output_begin(output_job **out, cli_output *output, const char *tag, gp_error *err)
{
    output_job *job = gp_calloc(1, sizeof(*job));

    if (job != NULL)
        job->tag = gp_strdup(tag);
    if (job == NULL || job->tag == NULL) {
        gp_free(job);
        return gp_fail(err, GP_ENOMEM, "no memory for a job's output");
    }
    job->output = output;
    for (int i = 0; i < STREAMS; i++) {
        job->streams[i].fd = -1;
        gp_buffer_init(&job->streams[i].text, REPORT_BYTES_MAX);
    }
    TAILQ_INSERT_TAIL(&output->jobs, job, queue);
    output->count++;
    *out = job;
    return GP_OK;
}

/* ---- opening ---- */

/* Create an unnamed file in $TMPDIR. File systems without O_TMPFILE get a named file, which is
 * unlinked at once. */
static int file_open(void)
{
    const char *folder = getenv("TMPDIR");
    char path[4096];
    int fd;

    if (folder == NULL || folder[0] == '\0')
        folder = "/tmp";
    fd = open(folder, O_TMPFILE | O_RDWR | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    snprintf(path, sizeof(path), "%.4000s/gradpool-XXXXXX", folder);
    fd = mkostemp(path, O_APPEND | O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

gp_status output_open(output_job *job, int *out, int *err, gp_error *error)
{
    const bool whole = job->output->options.kind == OUTPUT_WHOLE;
    int ends[STREAMS] = { -1, -1 }, pipes[2];

    for (int i = 0; i < STREAMS; i++) {
        stream *s = &job->streams[i];

        stream_close(s);
        if (whole) {
            s->fd = file_open();
            ends[i] = s->fd < 0 ? -1 : fcntl(s->fd, F_DUPFD_CLOEXEC, 3);
        } else if (pipe2(pipes, O_CLOEXEC) == 0) {
            s->fd = pipes[0];
            ends[i] = pipes[1];
            /* this open file description is not shared with the command */
            fcntl(s->fd, F_SETFL, O_NONBLOCK);
        }
        if (ends[i] < 0) {
            gp_fail_errno(error, GP_EIO,
                          whole ? "cannot create a temporary file for the output of a job; set TMPDIR"
                                : "cannot create a pipe for the output of a job");
            if (ends[0] >= 0)
                close(ends[0]);
            return GP_EIO;
        }
    }
    *out = ends[0];
    *err = ends[1];
    return GP_OK;
}

/* ---- writing ---- */

/* Write everything to standard output or standard error. Wait while a nonblocking descriptor is
 * full. Ctrl-C pressed twice gives up (options.stop).
 *   which  0: standard output, 1: standard error */
static gp_status write_all(const cli_output *output, int which, const void *data, size_t bytes, gp_error *err)
{
    const char *at = data;
    int fd = which == 0 ? output->options.out : output->options.err;

    if (bytes > 0 && output->options.before != NULL)
        output->options.before(output->options.context);
    while (bytes > 0) {
        ssize_t wrote = write(fd, at, bytes);

        if (wrote < 0 && ((errno != EAGAIN && errno != EINTR) ||
                          (output->options.stop != NULL && *output->options.stop > 1)))
            return gp_fail_errno(err, GP_EIO, "cannot write to standard %s", which == 0 ? "output" : "error");
        if (wrote < 0 && errno == EAGAIN)
            poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, LOOK_MS);
        if (wrote > 0) {
            at += wrote;
            bytes -= (size_t)wrote;
        }
    }
    return GP_OK;
}

/* Write a piece of a stream in one go, with the job's tag before each line. If it ends within a
 * line, the next piece continues that line. */
static gp_status write_piece(output_job *job, int which, const char *text, size_t bytes, gp_error *err)
{
    stream *s = &job->streams[which];
    gp_buffer tagged;
    gp_status status = GP_OK;

    if (bytes == 0)
        return GP_OK;
    if (job->output->options.copy != NULL)
        job->output->options.copy(job->output->options.copy_context, which, text, bytes);
    if (job->tag[0] == '\0') {
        s->broken = text[bytes - 1] != '\n';
        return write_all(job->output, which, text, bytes, err);
    }
    gp_buffer_init(&tagged, SIZE_MAX / 2);
    while (bytes > 0 && status == GP_OK) {
        const char *end = memchr(text, '\n', bytes);
        size_t line = end != NULL ? (size_t)(end - text) + 1 : bytes;

        if (!s->broken)
            status = gp_buffer_append(&tagged, job->tag, strlen(job->tag), err);
        if (status == GP_OK)
            status = gp_buffer_append(&tagged, text, line, err);
        s->broken = end == NULL;
        text += line;
        bytes -= line;
    }
    if (status == GP_OK)
        status = write_all(job->output, which, tagged.data, tagged.bytes, err);
    gp_buffer_deinit(&tagged);
    return status;
}

/* ---- WHOLE ---- */

/* Print a whole stream: the text in memory, then the file. */
static gp_status stream_copy(output_job *job, int which, gp_error *err)
{
    stream *s = &job->streams[which];
    gp_status status = write_piece(job, which, gp_buffer_text(&s->text), s->text.bytes, err);
    off_t at = 0;

    while (s->fd >= 0 && status == GP_OK) {
        ssize_t got = pread(s->fd, job->output->copy, COPY_BYTES, at);

        if (got < 0 && errno != EINTR)
            return gp_fail_errno(err, GP_EIO, "cannot read back the output of a job");
        if (got == 0)
            break;
        if (got > 0)
            status = write_piece(job, which, job->output->copy, (size_t)got, err);
        at += got > 0 ? got : 0;
    }
    return status;
}

/* Read a small file into memory and close it, to save descriptors. Larger files than `most` bytes
 * stay open. */
static gp_status stream_keep(stream *s, off_t most, gp_error *err)
{
    struct stat info;
    gp_status status;

    if (s->fd < 0 || fstat(s->fd, &info) != 0 || info.st_size > most)
        return GP_OK;
    if (info.st_size > 0) {
        status = gp_buffer_reserve(&s->text, (size_t)info.st_size, err);
        if (status != GP_OK)
            return status;
        ssize_t got = pread(s->fd, s->text.data + s->text.bytes, (size_t)info.st_size, 0);

        if (got < 0)
            return gp_fail_errno(err, GP_EIO, "cannot read back the output of a job");
        s->text.bytes += (size_t)got;
        s->text.data[s->text.bytes] = '\0';
    }
    close(s->fd);
    s->fd = -1;
    return GP_OK;
}

/* Print a finished job: the text that the report callback makes of it, or standard output followed
 * by standard error. */
static gp_status job_write(output_job *job, gp_error *err)
{
    const output_options *options = &job->output->options;
    gp_status status = GP_OK;
    gp_buffer text;

    for (int i = 0; i < STREAMS && status == GP_OK; i++)
        status = options->report != NULL ? stream_keep(&job->streams[i], REPORT_BYTES_MAX / 2, err)
                                         : stream_copy(job, i, err);
    if (options->report == NULL || status != GP_OK)
        return status;
    gp_buffer_init(&text, 4 * (size_t)REPORT_BYTES_MAX);
    status = options->report(options->report_context, job->subject, &job->streams[0].text,
                             &job->streams[1].text, &text, err);
    if (status == GP_OK)
        status = write_all(job->output, 0, text.data, text.bytes, err);
    gp_buffer_deinit(&text);
    return status;
}

/* ---- LINES ---- */

/* Print the complete lines received so far and keep the rest. A line longer than
 * OUTPUT_LINE_BYTES_MAX is printed in pieces.
 *   all  print the incomplete line too */
static gp_status lines_take(output_job *job, int which, bool all, gp_error *err)
{
    gp_buffer *text = &job->streams[which].text;
    const char *end = text->bytes == 0 ? NULL : memrchr(text->data, '\n', text->bytes);
    size_t bytes = end == NULL ? 0 : (size_t)(end - (const char *)text->data) + 1;
    gp_status status;

    if (all || text->bytes - bytes > OUTPUT_LINE_BYTES_MAX)
        bytes = text->bytes;
    if (bytes == 0)
        return GP_OK;
    status = write_piece(job, which, (const char *)text->data, bytes, err);
    memmove(text->data, text->data + bytes, text->bytes - bytes);
    text->bytes -= bytes;
    return status;
}

/* Read from a pipe, until it is empty or `most` bytes were read, and print complete lines.
 *   ended  set to true at end of file */
static gp_status stream_read(output_job *job, int which, size_t most, bool *ended, gp_error *err)
{
    stream *s = &job->streams[which];
    gp_status status = GP_OK;
    size_t read_bytes = 0;

    *ended = s->fd < 0;
    while (s->fd >= 0 && status == GP_OK && read_bytes < most) {
        ssize_t got = read(s->fd, job->output->copy, COPY_BYTES);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            *ended = got == 0 || errno != EAGAIN;
            break;
        }
        status = gp_buffer_append(&s->text, job->output->copy, (size_t)got, err);
        if (status == GP_OK)
            status = lines_take(job, which, false, err);
        read_bytes += (size_t)got;
    }
    return status;
}

/* Print the remaining output of a command that ended, and close the pipes. A background process may
 * keep a pipe open and write forever. Therefore read at most the pipe capacity: the command cannot
 * have left more. */
static gp_status streams_finish(output_job *job, gp_error *err)
{
    gp_status status = GP_OK;
    bool ended;

    for (int i = 0; i < STREAMS && status == GP_OK; i++) {
        int room = job->streams[i].fd < 0 ? 0 : fcntl(job->streams[i].fd, F_GETPIPE_SZ);

        status = stream_read(job, i, room > 0 ? (size_t)room : 0, &ended, err);
        if (status == GP_OK)
            status = lines_take(job, i, true, err);
        /* End an incomplete line, so that another job's output starts on a new line. */
        if (status == GP_OK && job->streams[i].broken)
            status = write_all(job->output, i, "\n", 1, err);
        stream_close(&job->streams[i]);
    }
    return status;
}

nfds_t output_fds(const cli_output *output, struct pollfd *fds, nfds_t max)
{
    const output_job *job;
    nfds_t count = 0;

    if (output->options.kind != OUTPUT_LINES)
        return 0;
    TAILQ_FOREACH(job, &output->jobs, queue)
    for (int i = 0; i < STREAMS; i++) {
        if (job->streams[i].fd < 0)
            continue;
        if (fds != NULL && count < max)
            fds[count] = (struct pollfd){ .fd = job->streams[i].fd, .events = POLLIN };
        count++;
    }
    return count;
}

gp_status output_read(cli_output *output, const struct pollfd *fds, nfds_t count, gp_error *err)
{
    gp_status status = GP_OK;
    nfds_t at = 0;
    output_job *job;

    TAILQ_FOREACH(job, &output->jobs, queue)
    for (int i = 0; i < STREAMS && status == GP_OK; i++) {
        bool ended = false;

        if (at == count || job->streams[i].fd != fds[at].fd)
            continue;
        if (fds[at].revents != 0)
            status = stream_read(job, i, 1, &ended, err);
        if (ended) {
            close(job->streams[i].fd);
            job->streams[i].fd = -1;
        }
        at++;
    }
    return status;
}

/* ---- ends ---- */

void output_print(output_job *job, const char *line)
{
    char text[SAY_BYTES];
    stream *s = &job->streams[1];
    int bytes = snprintf(text, sizeof(text), "%.*s\n", SAY_BYTES - 2, line);

    if (job->output->options.kind == OUTPUT_WHOLE && s->fd >= 0) {
        if (write(s->fd, text, (size_t)bytes) == bytes) /* the file was opened with O_APPEND */
            return;
    }
    gp_buffer_append(&s->text, text, (size_t)bytes, NULL);
}

void output_subject(output_job *job, void *subject)
{
    if (job->subject != NULL)
        job->output->options.subject_free(job->subject);
    job->subject = subject;
}

gp_status output_drop(output_job *job, gp_error *err)
{
    if (job->output->options.kind == OUTPUT_LINES)
        return streams_finish(job, err);
    for (int i = 0; i < STREAMS; i++)
        stream_close(&job->streams[i]);
    return GP_OK;
}

gp_status output_end(output_job *job, gp_error *err)
{
    cli_output *output = job->output;
    const bool ordered = output->options.kind == OUTPUT_WHOLE && output->options.ordered;
    const bool waits = ordered && job != TAILQ_FIRST(&output->jobs);
    gp_status status = GP_OK;

    job->ended = true;
    if (!ordered) {
        status = output->options.kind == OUTPUT_LINES ? streams_finish(job, err) : job_write(job, err);
        job_free(job);
        return status;
    }
    for (int i = 0; i < STREAMS && status == GP_OK; i++) {
        if (waits)
            status = stream_keep(&job->streams[i], OUTPUT_SMALL_BYTES, err);
        job->files += job->streams[i].fd >= 0;
    }
    output->files += job->files;
    /* print finished jobs up to the first unfinished one */
    while (status == GP_OK && (job = TAILQ_FIRST(&output->jobs)) != NULL && job->ended) {
        status = job_write(job, err);
        job_free(job);
    }
    return status;
}
