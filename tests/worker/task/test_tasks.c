/* test_tasks.c: a link within one process: the compute thread serves it, the test is the client. */
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/worker/task/link_client.h"
#include "worker/task/blobs.h"
#include "worker/task/object.h"
#include "worker/task/tasks.h"

typedef struct served {
    link_client client;
    gp_link_server *server;
    gp_mailbox *mailbox;
    gp_train_control train;
    gp_worker_device device;
    gp_objects *objects;
    pthread_t compute, control;
    atomic_bool blind;   /* the control thread must not look for blobs */
    atomic_bool blinded; /* acknowledged by the control thread */
    atomic_bool over;
    bool has_threads;
    int control_socket; /* control socket of the worker */
} served;

static served s;
static gp_objects *objects; /* shared by all tests, as by all links of a worker */

static void blob_add(link_client *client, uint64_t number, int fd)
{
    gp_error err;

    (void)client;
    CHECK_STATUS(GP_OK, gp_blobs_add(s.server->blobs, number, fd, &err));
}

static void *compute_main(void *argument)
{
    gp_tasks_setup setup = {
        .server = s.server, .mailbox = s.mailbox, .train = &s.train, .device = &s.device, .objects = objects
    };

    gp_tasks_serve(&setup);
    return argument;
}

/* Control thread that only checks an empty control socket, so that waits for blobs end. */
static void *control_main(void *argument)
{
    struct pollfd woken = { .fd = gp_mailbox_fd(s.mailbox), .events = POLLIN };

    while (!atomic_load(&s.over)) {
        poll(&woken, 1, 20);
        gp_mailbox_calm(s.mailbox);
        atomic_store(&s.blinded, atomic_load(&s.blind));
        if (atomic_load(&s.blinded))
            continue;
        gp_blobs_look_begin(s.server->blobs);
        gp_blobs_look_end(s.server->blobs);
    }
    return argument;
}

/* Create a link without threads. */
static void link_make(void)
{
    int control_sockets[2];
    gp_error err;

    memset(&s, 0, sizeof(s));
    client_open(&s.client);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, control_sockets) != 0 ||
        (objects == NULL && gp_objects_new(&objects, &err) != GP_OK) ||
        gp_mailbox_new(&s.mailbox, &err) != GP_OK ||
        gp_link_server_new(&s.server, dup(s.client.segment), dup(s.client.wakeup_fd), control_sockets[0],
                           s.mailbox, false, &err) != GP_OK)
        abort();
    s.control_socket = control_sockets[0];
    s.client.control_socket = control_sockets[1];
    s.client.send_blob = blob_add;
    s.server->rank = 1;
    s.server->size = 4;
    s.device = (gp_worker_device){ .kind = GP_DEVICE_CPU, .uuid = "cpu-0", .name = "a CPU", .shared = true };
    gp_train_control_init(&s.train);
}

static void link_begin(void)
{
    link_make();
    if (pthread_create(&s.compute, NULL, compute_main, NULL) != 0 ||
        pthread_create(&s.control, NULL, control_main, NULL) != 0)
        abort();
    s.has_threads = true;
}

/* Begin a link with object 1 loaded. */
static void link_with_calls(void)
{
    link_begin();
    answer(&s.client, object_send(&s.client, TASKS_CALLS, 1));
    CHECK_STATUS(GP_OK, last.head.status);
}

static void link_free(void)
{
    gp_link_server_free(s.server);
    gp_mailbox_free(s.mailbox);
    gp_train_control_deinit(&s.train);
    gp_link_free(s.client.link);
    close(s.client.segment);
    close(s.client.wakeup_fd);
    close(s.client.control_socket);
    close(s.control_socket);
    s.server = NULL;
}

static void link_join(void)
{
    pthread_join(s.compute, NULL);
    atomic_store(&s.over, true);
    gp_mailbox_wake(s.mailbox);
    pthread_join(s.control, NULL);
    s.has_threads = false;
    link_free();
}

static void link_end(void)
{
    call_new(&s.client, GP_CALL_CLOSE, NULL, 0);
    call_send(&s.client);
    link_join();
}

TEARDOWN()
{
    if (s.has_threads)
        link_end();
    else if (s.server != NULL)
        link_free();
}

/* ---- calls ---- */

TEST(task_is_sent_found_run_and_answered)
{
    double x = 3;

    link_with_calls();
    CHECK(run(&s.client, function_of(&s.client, "square"), &x, sizeof(x)));
    CHECK_STATUS(GP_OK, last.head.status);
    CHECK_INT(sizeof(double), last.bytes);
    memcpy(&x, last.content, sizeof(x));
    CHECK_NEAR(9, x, 0);
    CHECK_INT(1, s.server->used);
}

TEST(an_empty_task_has_an_empty_result)
{
    link_with_calls();
    CHECK(run(&s.client, function_of(&s.client, "empty"), NULL, 0));
    CHECK_STATUS(GP_OK, last.head.status);
    CHECK_INT(0, last.bytes);
}

TEST(many_calls_are_answered_in_their_order)
{
    uint32_t echo;
    uint64_t first, sent = 0, got = 0;
    enum { CALLS = 20000 };

    link_with_calls();
    echo = function_of(&s.client, "echo");
    first = s.client.id + 1;
    while (got < CALLS) {
        while (sent < CALLS && sent - got < 1000) {
            call_new(&s.client, GP_CALL_RUN, &sent, sizeof(sent))->function = echo;
            sent++;
        }
        call_send(&s.client);
        while (gp_link_pending(s.client.link) || sent - got >= 1000 || (sent == CALLS && got < CALLS)) {
            uint64_t echoed;

            if (!answer(&s.client, first + got))
                return;
            memcpy(&echoed, last.content, sizeof(echoed));
            CHECK_INT(got, echoed);
            got++;
        }
    }
}

TEST(results_arrive_inline_or_as_a_blob_by_size)
{
    static const size_t sizes[] = { 0, 1, 64, GP_LINK_INLINE_MAX, GP_LINK_INLINE_MAX + 1, 100000, 4 << 20 };
    uint32_t grow;

    link_with_calls();
    grow = function_of(&s.client, "grow");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        CHECK(run(&s.client, grow, &sizes[i], sizeof(sizes[i])));
        CHECK_STATUS(GP_OK, last.head.status);
        CHECK_INT(sizes[i], last.bytes);
        CHECK((last.head.blob != 0) == (sizes[i] > GP_LINK_INLINE_MAX));
        for (size_t at = 0; at < last.bytes; at += 997)
            CHECK_INT(at & 0xff, last.content[at]);
    }
    CHECK(run(&s.client, function_of(&s.client, "twice"), NULL, 0));
    CHECK_TEXT("last", (const char *)last.content);
}

static bool grow_to(uint32_t grow, size_t bytes)
{
    if (!run(&s.client, grow, &bytes, sizeof(bytes)))
        return false;
    CHECK_STATUS(GP_OK, last.head.status);
    for (size_t at = 0; at < bytes; at += 997)
        CHECK_INT(at & 0xff, last.content[at]);
    return true;
}

/* Return whether this kernel reports open files through leases. */
static bool leases_work(void)
{
    char path[40];
    int file = file_of("x", 1, 0), again;
    bool works;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    again = open(path, O_RDWR | O_CLOEXEC);
    close(file);
    works = fcntl(again, F_SETLEASE, F_WRLCK) == 0;
    close(again);
    return works;
}

TEST(memory_of_a_large_result_is_reused_after_the_client_closed_it)
{
    uint32_t grow;
    ino_t first;
    char byte = 0;

    if (!leases_work())
        SKIP("the kernel grants no leases on memory files, so memory is not reused");
    link_with_calls();
    grow = function_of(&s.client, "grow");
    CHECK(grow_to(grow, 1 << 20));
    first = s.client.inode;
    s.client.hold = true;
    CHECK(grow_to(grow, (1 << 20) - 5000)); /* a slightly smaller result fits too */
    CHECK_INT(first, s.client.inode);
    s.client.hold = false;
    CHECK(grow_to(grow, 1 << 20)); /* while the client holds the last one */
    CHECK(s.client.inode != first);
    CHECK_INT(1, pread(s.client.held, &byte, 1, 997));
    CHECK_INT(997 & 0xff, (unsigned char)byte);
    CHECK(write(s.client.held, "x", 1) < 0); /* only the worker may write */
    close(s.client.held);

    /* more sizes than the cache holds */
    for (size_t bytes = 100000; bytes < 3000000; bytes += 500000)
        CHECK(grow_to(grow, bytes));
    for (int i = 0; i < 20; i++)
        CHECK(grow_to(grow, 100000 + (size_t)i * 100000));
}

TEST(results_beyond_the_cache_limit_replace_each_other)
{
    gp_results results = { 0 };
    gp_error err;
    uint64_t number;
    int control_sockets[2];
    gp_blobs *blobs;

    link_make();
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, control_sockets) == 0);
    REQUIRE_OK(gp_blobs_new(&blobs, control_sockets[0], s.mailbox, &err), err);
    for (int i = 0; i < 30; i++) { /* never touched: no page is allocated */
        size_t bytes = (size_t)GP_RESULTS_BYTES_KEPT / 2 * (size_t)(1 + i % 3) + 1;
        gp_memory memory;

        CHECK_STATUS(GP_OK, gp_results_take(&results, bytes, &memory, &err));
        CHECK(memory.bytes >= bytes);
        CHECK_STATUS(GP_OK, gp_results_send(&results, &memory, blobs, &number, &err));
        CHECK_INT(i + 1, number);
        CHECK(results.bytes <= GP_RESULTS_BYTES_KEPT && results.count <= GP_RESULTS_KEPT);
    }
    gp_results_deinit(&results);
    gp_blobs_free(blobs);
    close(control_sockets[0]);
    close(control_sockets[1]);
}

TEST(blob_is_an_argument_for_many_calls_until_released)
{
    enum { BYTES = 3 << 20 };
    unsigned char *data = gp_malloc(BYTES);
    gp_call *call;
    uint64_t blob;
    uint32_t echo;

    link_with_calls();
    echo = function_of(&s.client, "echo");
    for (size_t i = 0; i < BYTES; i++)
        data[i] = (unsigned char)(i * 7);
    blob = blob_put(&s.client, file_of(data, BYTES, ALL_SEALS));
    for (size_t bytes = BYTES; bytes > 1000; bytes /= 30) {
        call = call_new(&s.client, GP_CALL_RUN, NULL, 0);
        call->function = echo;
        call->blob = blob;
        call->payload_bytes = bytes;
        CHECK(answer(&s.client, call_send(&s.client)));
        CHECK_STATUS(GP_OK, last.head.status);
        CHECK_INT(bytes, last.bytes);
        CHECK(memcmp(data, last.content, bytes) == 0);
    }
    call = call_new(&s.client, GP_CALL_RUN, NULL, 0);
    call->function = echo;
    call->blob = blob;
    call->payload_bytes = BYTES + 1;
    answer(&s.client, call_send(&s.client));
    check_failed(GP_EPROTO, "has 3145728 bytes, must have 3145729");
    call_new(&s.client, GP_CALL_RELEASE, NULL, 0)->blob = blob;
    call_send(&s.client);
    call = call_new(&s.client, GP_CALL_RUN, NULL, 0);
    call->function = echo;
    call->blob = blob;
    call->payload_bytes = 10;
    answer(&s.client, call_send(&s.client));
    check_failed(GP_EPROTO, "was not received");
    gp_free(data);
}

TEST(a_blob_that_could_shrink_is_refused)
{
    uint32_t echo;
    gp_call *call;

    link_with_calls();
    echo = function_of(&s.client, "echo");
    call = call_new(&s.client, GP_CALL_RUN, NULL, 0);
    call->function = echo;
    call->blob = blob_put(&s.client, file_of("data", 4, F_SEAL_GROW));
    call->payload_bytes = 4;
    answer(&s.client, call_send(&s.client));
    check_failed(GP_EPROTO, "not sealed against shrinking");
}

TEST(a_call_waits_for_a_blob_that_is_slower_than_its_record)
{
    gp_call *call;
    uint32_t echo;
    uint64_t id;

    link_with_calls();
    echo = function_of(&s.client, "echo");
    atomic_store(&s.blind, true);
    while (!atomic_load(&s.blinded)) /* the control thread may be looking */
        usleep(1000);
    call = call_new(&s.client, GP_CALL_RUN, NULL, 0);
    call->function = echo;
    call->blob = s.client.blob + 1;
    call->payload_bytes = 4;
    id = call_send(&s.client);
    usleep(20000);
    blob_put(&s.client, file_of("late", 4, ALL_SEALS));
    CHECK(answer(&s.client, id));
    CHECK_TEXT("late", (const char *)last.content);
}

TEST(a_client_that_never_releases_is_stopped)
{
    gp_error err;
    uint64_t number = 0;

    link_make();
    while (number < GP_LINK_BLOBS_MAX) /* in arbitrary order */
        if (gp_blobs_add(s.server->blobs, 1 + (number++ * 7 % GP_LINK_BLOBS_MAX), file_of("x", 1, 0), &err) !=
            GP_OK)
            break;
    CHECK_INT(GP_LINK_BLOBS_MAX, number);
    CHECK_STATUS(GP_ELIMIT, gp_blobs_add(s.server->blobs, ++number, file_of("x", 1, 0), &err));
    CHECK_STATUS(GP_EPROTO, gp_blobs_add(s.server->blobs, 5, file_of("x", 1, 0), &err));
    CHECK_STATUS(GP_EPROTO, gp_blobs_add(s.server->blobs, 0, file_of("x", 1, 0), &err));
    CHECK_STATUS(GP_EPROTO, gp_blobs_add(s.server->blobs, number + 1, -1, &err));
}

TEST(task_error_has_status_and_message)
{
    uint32_t fail;

    link_with_calls();
    fail = function_of(&s.client, "fail");
    CHECK(run(&s.client, fail, "such thing", 10));
    check_failed(GP_ENOENT, "there is no such thing");
    CHECK(run(&s.client, fail, NULL, 0));
    check_failed(GP_ENODEV, "no usable device");
    CHECK(run(&s.client, function_of(&s.client, "strange"), NULL, 0));
    check_failed(GP_EINVAL, "returned the unknown status 4711");
}

TEST(unknown_requests_are_refused)
{
    link_with_calls();
    call_new(&s.client, 99, NULL, 0);
    answer(&s.client, call_send(&s.client));
    check_failed(GP_EUNSUPPORTED, "kind of call: 99");
    CHECK(run(&s.client, 77, NULL, 0));
    check_failed(GP_ENOENT, "has no function 77");
    CHECK(run(&s.client, UINT32_MAX, NULL, 0));
    check_failed(GP_ENOENT, "has no function");
    call_new(&s.client, GP_CALL_FUNCTION, NULL, 0)->count = 1;
    answer(&s.client, call_send(&s.client));
    CHECK(last.head.status != GP_OK);
}

TEST(a_revoked_call_is_not_run_and_not_answered)
{
    uint32_t until_canceled, count;
    uint64_t first, position, after;
    int calls;

    link_with_calls();
    until_canceled = function_of(&s.client, "until_canceled");
    count = function_of(&s.client, "count_calls");
    CHECK(run(&s.client, count, NULL, 0));
    memcpy(&calls, last.content, sizeof(calls));
    first = run_send(&s.client, until_canceled, NULL, 0);
    CHECK(answer_any(&s.client)); /* the log line shows that the call is running */
    run_send(&s.client, count, NULL, 0);
    position = gp_link_position(s.client.link);
    CHECK(gp_link_revoke(s.client.link, position));
    CHECK(!gp_link_revoke(s.client.link, position));
    after = run_send(&s.client, count, NULL, 0);
    gp_link_cancel(s.client.link, first);
    CHECK(answer(&s.client, first));
    CHECK(answer(&s.client, after));
    CHECK_INT(calls + 1, *(int *)(void *)last.content);
    CHECK(!gp_link_revoke(s.client.link, position)); /* the record was already released */
}

TEST(a_running_task_sees_that_it_is_canceled)
{
    uint64_t id;

    link_with_calls();
    id = run_send(&s.client, function_of(&s.client, "until_canceled"), NULL, 0);
    CHECK(answer_any(&s.client)); /* the log line shows that the call is running */
    CHECK_INT(GP_ANSWER_LOG, last.head.kind);
    CHECK_INT(id, gp_link_running(s.client.link));
    gp_link_cancel(s.client.link, id - 1); /* another call */
    usleep(10000);
    CHECK_INT(id, gp_link_running(s.client.link));
    gp_link_cancel(s.client.link, id);
    CHECK(answer(&s.client, id));
    check_failed(GP_ECANCELED, "as was asked");
}

TEST(a_stopped_seat_ends_task_and_link)
{
    link_with_calls();
    run_send(&s.client, function_of(&s.client, "until_canceled"), NULL, 0);
    answer_any(&s.client);
    gp_link_server_stop(s.server);
    link_join();
}

TEST(command_interrupts_an_idle_link)
{
    gp_error err;

    link_with_calls();
    usleep(5000);
    CHECK_STATUS(GP_OK, gp_mailbox_post(s.mailbox, GP_COMMAND_RESET, NULL, &err));
    link_join();
}

/* ---- objects ---- */

static void check_object(const char *path, gp_status status, const char *text)
{
    static uint32_t number = 10;

    CHECK(answer(&s.client, object_send(&s.client, path, number++)));
    check_failed(status, text);
}

TEST(files_without_tasks_are_refused_with_the_reason)
{
    link_with_calls();
    check_object(TASKS_NO_ABI, GP_EINVAL, "is not a task object: include <gradpool/task.h>");
    check_object(TASKS_OTHER_ABI, GP_EVERSION, "was built for task ABI 99");
    check_object(TASKS_UNRESOLVED, GP_EINVAL, "undefined symbol: a_function_of_a_library_that_was_forgotten");
    CHECK_CONTAINS((const char *)last.content, "tasks_unresolved.so: undefined symbol");
    check_object("/etc/passwd", GP_EINVAL, "cannot load /etc/passwd: ");
    check_object(TASKS_CALLS, GP_OK, "");
}

TEST(missing_function_error_lists_the_existing_ones)
{
    link_with_calls();
    answer(&s.client, function_send(&s.client, 1, 90, "sqare"));
    check_failed(GP_ENOENT, "has no function \"sqare\"; did you mean \"square\"?");
    answer(&s.client, function_send(&s.client, 1, 90, "nothing_like_it"));
    check_failed(GP_ENOENT, "its functions are ");
    answer(&s.client, function_send(&s.client, 1, 90, "malloc"));
    check_failed(GP_ENOENT, "has no function \"malloc\"");
    answer(&s.client, function_send(&s.client, 1, 90, "some_data"));
    check_failed(GP_ENOENT, "is data, not a function");
    answer(&s.client, function_send(&s.client, 7, 90, "square"));
    check_failed(GP_ENOENT, "has no object 7");
    answer(&s.client, function_send(&s.client, 1, 0, "square"));
    check_failed(GP_EPROTO, "not between 1 and 4096");
}

TEST(writable_or_mismatched_files_are_not_loaded)
{
    unsigned char payload[sizeof(gp_task_object) + 2] = { 0 };
    gp_call *call;

    link_begin();
    ((gp_task_object *)(void *)payload)->bytes = 4;
    payload[sizeof(gp_task_object)] = 'p';
    for (int seals = 0; seals < 2; seals++) {
        call = call_new(&s.client, GP_CALL_OBJECT, payload, sizeof(payload));
        call->count = 1;
        call->blob = blob_put(&s.client, file_of("ELF?", 4, seals ? ALL_SEALS : F_SEAL_SHRINK));
        call->payload_bytes = 4;
        answer(&s.client, call_send(&s.client));
        check_failed(seals ? GP_ECORRUPT : GP_EPERM,
                     seals ? "its SHA-256 differs" : "is not sealed against writing");
    }
    call = call_new(&s.client, GP_CALL_OBJECT, payload, sizeof(payload));
    call->count = 1;
    call->blob = blob_put(&s.client, file_of("ELF", 3, ALL_SEALS));
    call->payload_bytes = 3;
    answer(&s.client, call_send(&s.client));
    check_failed(GP_ECORRUPT, "has 3 bytes, must have 4");
}

TEST(the_same_content_is_loaded_once)
{
    int first;

    link_with_calls();
    answer(&s.client, object_send(&s.client, TASKS_CALLS, 2));
    CHECK_STATUS(GP_OK, last.head.status);
    CHECK(run(&s.client, function_of(&s.client, "count_calls"), NULL, 0));
    memcpy(&first, last.content, sizeof(first));
    answer(&s.client, function_send(&s.client, 2, 500, "count_calls"));
    CHECK_STATUS(GP_OK, last.head.status);
    CHECK(run(&s.client, 500, NULL, 0));
    CHECK_INT(first + 1, *(int *)(void *)last.content);
}

/* Run a call in a child process; the client in this process then sees the state after the crash. */
static int in_a_child(uint64_t *running, const char *object, const char *function)
{
    int status = -1;
    pid_t pid;
    uint64_t id;

    link_make();
    pid = fork();
    if (pid == 0) {
        gp_error err;

        if (gp_objects_new(&objects, &err) == GP_OK &&
            pthread_create(&s.compute, NULL, compute_main, NULL) == 0) {
            id = object_send(&s.client, object, 1);
            if (function != NULL && answer(&s.client, id)) {
                function_send(&s.client, 1, 1, function);
                answer(&s.client, s.client.id);
                run_send(&s.client, 1, NULL, 0);
            }
            pthread_join(s.compute, NULL);
        }
        _exit(77);
    }
    waitpid(pid, &status, 0);
    *running = gp_link_running(s.client.link);
    link_free();
    return status;
}

TEST(crash_leaves_the_number_of_the_crashing_call)
{
    uint64_t running;
    int status = in_a_child(&running, TASKS_CALLS, "crash");

    CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) != 77); /* sanitizers exit */
    CHECK_INT(3, running);
    status = in_a_child(&running, TASKS_CRASH, NULL);
    CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) != 77);
    CHECK_INT(1, running);
}

/* ---- functions in task.h ---- */

TEST(task_knows_its_position_and_device)
{
    link_with_calls();
    CHECK(run(&s.client, function_of(&s.client, "about"), NULL, 0));
    CHECK_TEXT("2 of 4, worker 2, attempt 1, cpu 0 cpu-0, 1 cores", (const char *)last.content);
}

TEST(both_sides_put_and_get_values)
{
    static unsigned char large[100000];
    static const char named[] = "kept\0of the client";
    uint32_t recall;
    gp_call *call;

    link_with_calls();
    recall = function_of(&s.client, "recall");
    CHECK(run(&s.client, recall, NULL, 0));
    check_failed(GP_ENOENT, "nothing is kept");
    call_new(&s.client, GP_CALL_GET, "kept", 4);
    answer(&s.client, call_send(&s.client));
    check_failed(GP_ENOENT, "no value \"kept\"");
    call_new(&s.client, GP_CALL_PUT, named, sizeof(named) - 1);
    answer(&s.client, call_send(&s.client));
    CHECK(run(&s.client, recall, NULL, 0));
    CHECK_TEXT("of the client", (const char *)last.content);
    CHECK(run(&s.client, function_of(&s.client, "remember"), "of the task", 11));
    call_new(&s.client, GP_CALL_GET, "kept", 4);
    answer(&s.client, call_send(&s.client));
    CHECK_TEXT("of the task", (const char *)last.content);
    memset(large, 'l', sizeof(large));
    call = call_new(&s.client, GP_CALL_PUT, "kept", 5);
    call->blob = blob_put(&s.client, file_of(large, sizeof(large), ALL_SEALS));
    call->payload_bytes = sizeof(large);
    answer(&s.client, call_send(&s.client));
    CHECK_STATUS(GP_OK, last.head.status);
    call_new(&s.client, GP_CALL_RELEASE, NULL, 0)->blob = s.client.blob;
    call_send(&s.client);
    CHECK(run(&s.client, recall, NULL, 0));
    CHECK_INT(sizeof(large), last.bytes);
    CHECK(memcmp(large, last.content, sizeof(large)) == 0);
    call_new(&s.client, GP_CALL_GET, "kept", 4);
    answer(&s.client, call_send(&s.client));
    CHECK(last.bytes == sizeof(large) && memcmp(large, last.content, sizeof(large)) == 0);
    call_new(&s.client, GP_CALL_PUT, "kept", 5)->flags = GP_CALL_REMOVE;
    answer(&s.client, call_send(&s.client));
    CHECK(run(&s.client, recall, NULL, 0));
    check_failed(GP_ENOENT, "nothing is kept");
}

TEST(thousands_of_values_are_found_and_bad_names_are_refused)
{
    char text[300];

    link_begin();
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 3000; i++) {
            int length = snprintf(text, sizeof(text), "value %d%c%d", i, 0, i * i);

            call_new(&s.client,
                     round == 0   ? GP_CALL_PUT
                     : round == 1 ? GP_CALL_GET
                                  : GP_CALL_PUT,
                     text, round == 1 ? strlen(text) : (size_t)length)
                ->flags = round == 2 ? GP_CALL_REMOVE : 0;
            if (!answer(&s.client, call_send(&s.client)))
                break;
            CHECK_STATUS(GP_OK, last.head.status);
            if (round == 1)
                CHECK_TEXT(text + strlen(text) + 1, (const char *)last.content);
        }
    memset(text, 'n', sizeof(text));
    call_new(&s.client, GP_CALL_PUT, text, GP_TASK_NAME_MAX);
    answer(&s.client, call_send(&s.client));
    CHECK_STATUS(GP_OK, last.head.status);
    call_new(&s.client, GP_CALL_PUT, text, GP_TASK_NAME_MAX + 1);
    answer(&s.client, call_send(&s.client));
    check_failed(GP_EPROTO, "the function name has more than 128 bytes");
    call_new(&s.client, GP_CALL_PUT, NULL, 0);
    answer(&s.client, call_send(&s.client));
    check_failed(GP_EPROTO, "has no name");
    call_new(&s.client, GP_CALL_GET, "\0x", 2);
    answer(&s.client, call_send(&s.client));
    check_failed(GP_EPROTO, "has no name");
}

TEST(a_constant_is_built_once_and_dropped_when_the_link_ends)
{
    int ends[2];
    char said[8] = "";
    uint32_t constant;

    if (pipe(ends) != 0)
        abort();
    link_with_calls();
    constant = function_of(&s.client, "constant");
    CHECK(run(&s.client, constant, &ends[1], sizeof(ends[1])));
    check_failed(GP_EBUSY, "not the first time");
    for (int i = 0; i < 3; i++) {
        CHECK(run(&s.client, constant, NULL, 0));
        CHECK_STATUS(GP_OK, last.head.status);
        CHECK_INT(2, *(int *)(void *)last.content);
    }
    link_end();
    CHECK_INT(7, read(ends[0], said, sizeof(said)));
    CHECK_TEXT("dropped", said);
    close(ends[0]);
    close(ends[1]);
}

TEST(an_attached_file_can_be_opened_by_its_name)
{
    uint32_t read_file;
    gp_call *call;

    link_with_calls();
    read_file = function_of(&s.client, "read_file");
    CHECK(run(&s.client, read_file, NULL, 0));
    check_failed(GP_ENOENT, "no file is attached");
    for (int seals = 0; seals < 2; seals++) {
        call = call_new(&s.client, GP_CALL_FILE, "the file", 9);
        call->blob = blob_put(&s.client, file_of("content", 7, seals ? ALL_SEALS : F_SEAL_GROW));
        call->payload_bytes = 7;
        answer(&s.client, call_send(&s.client));
        check_failed(seals ? GP_OK : GP_EPERM, seals ? "" : "is not sealed");
    }
    for (int i = 0; i < 2; i++) {
        CHECK(run(&s.client, read_file, NULL, 0));
        CHECK_TEXT("content", (const char *)last.content);
    }
}

TEST(random_numbers_depend_on_the_seed_alone)
{
    unsigned char first[100], other[100];
    uint32_t draw;
    size_t bytes = 0;

    link_with_calls();
    draw = function_of(&s.client, "draw");
    for (uint64_t seed = 1; seed < 3; seed++)
        for (int again = 0; again < 2; again++) {
            gp_call *call = call_new(&s.client, GP_CALL_RUN, NULL, 0);

            call->function = draw;
            call->value = seed;
            CHECK(answer(&s.client, call_send(&s.client)));
            bytes = last.bytes;
            if (again == 0)
                memcpy(seed == 1 ? first : other, last.content, bytes);
            else
                CHECK(memcmp(seed == 1 ? first : other, last.content, bytes) == 0);
        }
    CHECK_INT(56, bytes);
    CHECK(memcmp(first, other, bytes) != 0);
}

TEST(lines_and_items_precede_the_result_in_order)
{
    uint64_t id;
    gp_control_socket_request request;
    gp_error err;

    link_with_calls();
    id = run_send(&s.client, function_of(&s.client, "tell"), NULL, 0);
    CHECK(answer_any(&s.client));
    CHECK_INT(GP_ANSWER_LOG, last.head.kind);
    CHECK_INT(id, last.head.id);
    CHECK_TEXT("one two 3", (const char *)last.content);
    CHECK(answer_any(&s.client));
    CHECK_INT(GP_ANSWER_QUEUE, last.head.kind);
    CHECK(last.bytes == 10 && memcmp(last.content, "small\0item", 10) == 0);
    CHECK(answer_any(&s.client));
    CHECK_INT(GP_ANSWER_QUEUE, last.head.kind);
    CHECK_TEXT("large", (const char *)last.content);
    CHECK_INT(100000, last.head.payload_bytes);
    CHECK_STATUS(GP_OK, gp_control_socket_receive_fd(s.client.control_socket, &request, NULL, 1000, &err));
    CHECK_INT(last.head.blob, request.lease);
    CHECK(answer_any(&s.client));
    CHECK_TEXT("end", (const char *)last.content);
    CHECK(answer(&s.client, id));
    check_failed(GP_EINVAL, "invalid queue name of 0 bytes");
}

TEST(an_item_that_cannot_be_sent_fails_also_without_an_error_struct)
{
    uint64_t id;

    link_with_calls();
    id = run_send(&s.client, function_of(&s.client, "tell_without_err"), NULL, 0);
    CHECK(answer(&s.client, id));
    CHECK(last.bytes == 1 && last.content[0] == 1);
}

TEST(unread_log_is_dropped_and_counted)
{
    uint64_t lines = 0, dropped = 0;

    link_with_calls();
    run_send(&s.client, function_of(&s.client, "flood"), "log", 3);
    while (gp_link_pending(s.client.link) == 0)
        usleep(1000);
    usleep(50000); /* the task does not wait for the reader */
    while (answer_any(&s.client) && last.head.kind != GP_ANSWER_DONE) {
        lines += last.head.kind == GP_ANSWER_LOG;
        dropped += last.head.kind == GP_ANSWER_DROPPED ? last.head.value : 0;
    }
    CHECK_STATUS(GP_OK, last.head.status);
    CHECK(lines > 100);
    CHECK(run(&s.client, function_of(&s.client, "about"), NULL, 0));
    CHECK(dropped == 0 || lines + dropped <= 2000);
}

TEST(queue_waits_for_space_and_loses_nothing)
{
    uint64_t id, items = 0;

    link_with_calls();
    id = run_send(&s.client, function_of(&s.client, "flood"), "queue", 5);
    while (gp_link_running(s.client.link) != id)
        usleep(1000);
    usleep(20000);
    CHECK_INT(id, gp_link_running(s.client.link));
    while (answer_any(&s.client) && last.head.kind == GP_ANSWER_QUEUE)
        items++;
    CHECK_INT(2000, items);
    CHECK_INT(id, last.head.id);
    CHECK_STATUS(GP_OK, last.head.status);
}

TEST(a_task_that_waits_for_room_can_be_canceled)
{
    uint64_t id;

    link_with_calls();
    id = run_send(&s.client, function_of(&s.client, "flood"), "for ever", 8);
    answer_any(&s.client);
    gp_link_cancel(s.client.link, id);
    while (last.head.kind != GP_ANSWER_DONE && answer_any(&s.client))
        usleep(500); /* slower than the task */
    check_failed(GP_ECANCELED, "waited for space");
}

/* ---- without memory ---- */

TEST(seat_without_memory_is_refused_and_leaks_nothing)
{
    int64_t live;
    gp_link_server *server;
    gp_error err;

    link_make();
    live = gp_alloc_get_stats().live;
    for (uint64_t n = 1; n < 100; n++) {
        int segment = dup(s.client.segment), wakeup_fd = dup(s.client.wakeup_fd);
        gp_status status;

        gp_alloc_fail_nth(n);
        status = gp_link_server_new(&server, segment, wakeup_fd, s.control_socket, s.mailbox, false, &err);
        if (gp_alloc_fail_nth(0) != 0) { /* fewer allocations than n */
            CHECK_STATUS(GP_OK, status);
            CHECK(n > 2);
            gp_link_server_free(server);
            break;
        }
        CHECK_STATUS(GP_ENOMEM, status);
        CHECK_INT(live, gp_alloc_get_stats().live);
        close(segment);
        close(wakeup_fd);
    }
    CHECK_INT(live, gp_alloc_get_stats().live);
}

TEST(failed_allocations_refuse_a_link_or_fail_a_call)
{
    gp_status seen = GP_OK;
    int64_t live;

    link_make();
    live = gp_alloc_get_stats().live;
    for (uint64_t n = 1; n < 8; n++) {
        gp_alloc_fail_nth(n);
        compute_main(NULL);
        if (gp_alloc_fail_nth(0) != 0)
            GP_TEST_FAIL("fewer than %llu allocations", (unsigned long long)n);
        CHECK_INT(live, gp_alloc_get_stats().live);
    }
    link_free();
    link_with_calls();
    for (uint64_t n = 1; n < 4; n++) { /* the client side allocates nothing */
        call_new(&s.client, GP_CALL_PUT, "name\0value", 10);
        gp_alloc_fail_nth(n);
        CHECK(answer(&s.client, call_send(&s.client)));
        gp_alloc_fail_nth(0);
        if (n == 1)
            seen = (gp_status)last.head.status;
    }
    CHECK_STATUS(GP_ENOMEM, seen);
    CHECK_STATUS(GP_OK, last.head.status);
}

/* ---- random input ---- */

static const uint16_t random_kinds[] = {
    GP_CALL_OBJECT,
    GP_CALL_FUNCTION,
    GP_CALL_FILE,
    GP_CALL_RUN,
    GP_CALL_PUT,
    GP_CALL_GET,
    GP_CALL_FETCH,
    GP_CALL_FORGET,
    GP_CALL_LOOP_OPEN,
    GP_CALL_LOOP,
    GP_CALL_LOOP_CLOSE,
    GP_CALL_COMBINE,
    77,
};

/* Return mostly small numbers, so that some are valid. */
static uint64_t random_number(void)
{
    return rand() % 16 == 0 ? (uint64_t)rand() << (rand() % 33) : (uint64_t)rand() % 5;
}

static void random_call(void)
{
    union {
        gp_task_loop loop;
        unsigned char bytes[400];
    } payload;
    size_t bytes = (size_t)rand() % sizeof(payload);
    gp_call *call;

    for (size_t i = 0; i < sizeof(payload); i++)
        payload.bytes[i] = (unsigned char)(rand() % 3 == 0 ? 0 : rand());
    if (rand() % 2 == 0)
        payload.loop = (gp_task_loop){ .first = (int64_t)random_number(),
                                       .step = (int64_t)random_number(),
                                       .total = random_number(),
                                       .input_bytes = (uint32_t)random_number(),
                                       .output_bytes = (uint32_t)random_number(),
                                       .reduce_bytes = (uint32_t)random_number() * 8,
                                       .reduce_block = (uint32_t)random_number(),
                                       .combine = (uint32_t)random_number(),
                                       .reduce_kind = (uint32_t)random_number(),
                                       .argument_bytes = random_number(),
                                       .flags = (uint32_t)random_number() };
    call =
        call_new(&s.client, random_kinds[(size_t)rand() % (sizeof(random_kinds) / 2)], payload.bytes, bytes);
    call->flags = (uint16_t)(rand() % 4);
    call->function = (uint32_t)random_number();
    call->count = (uint32_t)random_number();
    call->first = (int64_t)random_number();
    call->value = 1 + random_number();
    if (rand() % 4 == 0) {
        call->blob = rand() % 50 == 0 ? blob_put(&s.client, file_of(payload.bytes, bytes, ALL_SEALS))
                                      : 1 + (uint64_t)rand() % s.client.blob;
        call->payload_bytes = (uint64_t)rand() % 500;
    }
}

TEST(random_calls_are_answered_or_end_the_link)
{
    int64_t deadline = gp_now_ms() + 2000;
    uint64_t calls = 0, answers = 0;

    srand(4711);
    link_with_calls();
    for (int i = 0; i < 4; i++)
        function_of(&s.client, "empty");
    for (; (gp_now_ms() < deadline || calls < 200) && calls < 100000; calls++) {
        random_call();
        if (!answer(&s.client, call_send(&s.client)))
            break;
        answers++;
    }
    CHECK_INT(calls, answers);
    CHECK(calls > 100);
}
