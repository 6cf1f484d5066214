/* behave_output.c: tasks that print. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gradpool/task.h>

/* Print two lines and an incomplete one. Argument and result: a number. */
GP_TASK gp_status print_number(gp_task *task, gp_error *err)
{
    size_t bytes;
    int64_t number;
    const void *argument = gp_task_argument(task, &bytes);

    if (bytes != sizeof(number))
        return gp_fail(err, GP_EINVAL, "the argument is a number");
    memcpy(&number, argument, sizeof(number));
    printf("out %" PRId64 "\n", number);
    fprintf(stderr, "err %" PRId64 "\n", number);
    printf("end %" PRId64, number);
    return gp_task_result(task, &number, sizeof(number), err);
}

/* Print the iteration; every third one fails. */
GP_TASK gp_status print_iteration(gp_task *task, gp_error *err)
{
    int64_t iteration = gp_task_iteration(task);

    printf("%" PRId64 " on worker %" PRIu32 "\n", iteration, gp_task_worker(task));
    if (iteration % 3 == 0)
        return gp_fail(err, GP_EINVAL, "iteration %" PRId64 " fails", iteration);
    return GP_OK;
}

/* Print the iteration and the process, and return both. */
GP_TASK gp_status print_place(gp_task *task, gp_error *err)
{
    const int64_t place[2] = { gp_task_iteration(task), getpid() };

    printf("iteration %" PRId64 " in process %" PRId64 "\n", place[0], place[1]);
    return gp_task_result(task, place, sizeof(place), err);
}

/* Let a child process print after the task has returned. */
GP_TASK gp_status print_later(gp_task *task, gp_error *err)
{
    (void)task;
    pid_t child = fork();

    if (child == 0) {
        static const char text[] = "later\n";

        usleep(100000);
        _exit(write(STDOUT_FILENO, text, strlen(text)) > 0 ? 0 : 1);
    }
    return child > 0 ? GP_OK : gp_fail(err, GP_EIO, "cannot fork");
}

/* Run a rank of a block: print before and after a barrier. */
GP_TASK gp_status print_rank(gp_task *task, gp_error *err)
{
    gp_status status;

    printf("rank %" PRIu32 " begins\n", gp_task_index(task));
    status = gp_task_barrier(task, err);
    printf("rank %" PRIu32 " ends\n", gp_task_index(task));
    return status;
}

/* Print a line and a part of a line, then end the process: at the first start by abort(), at the
 * second by SIGKILL when the file named by the argument exists. The third start succeeds. */
GP_TASK gp_status print_and_die(gp_task *task, gp_error *err)
{
    uint32_t attempt = gp_task_attempt(task);
    char path[600];
    size_t bytes;
    const void *argument = gp_task_argument(task, &bytes);

    snprintf(path, sizeof(path), "%.*s", (int)bytes, (const char *)argument);
    printf("start %" PRIu32 "\n", attempt);
    fprintf(stderr, "torn %" PRIu32, attempt);
    if (attempt == 1)
        abort();
    if (attempt == 2) {
        while (access(path, F_OK) != 0)
            usleep(1000);
        kill(getpid(), SIGKILL);
    }
    return gp_task_result(task, &attempt, sizeof(attempt), err);
}
