/* What spawn.py does, for a hundredth of its price: an interpreter takes 8 ms and more of a processor before it does anything.
 *
 * The same command line (_spawn PARENT REPORT LC_CTYPE DIRECTORY CONFINEMENT COMMAND...), the same steps in the same order, the same
 * report. That script says why each is taken, and is what this is held to by the tests; it does what this does not know, which
 * is every line of CONFINEMENT but "cgroup" and "subreaper" (exit with status 64: nothing was begun). LC_CTYPE is Python's own
 * affair: nothing here changes the environment. Built where there is a compiler; see launchers.py.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { REPORT_FD = 3, OUTLIVES = 0, CANNOT = 127, NOT_MINE = 64 };
enum { PARENT = 1, REPORT, LC_CTYPE_, DIRECTORY, CONFINEMENT, COMMAND };

extern char **environ;

static void fail(const char *step, int number) {
    dprintf(REPORT_FD, "failed %s %d\n", step, number);
    _exit(CANNOT);
}

static void need(int result, const char *step) {
    if (result < 0)
        fail(step, errno);
}

/* The word that a line begins with: what follows it, or NULL. */
static const char *after(const char *line, const char *word) {
    size_t length = strlen(word);
    return strncmp(line, word, length) ? NULL : line + length;
}

static void close_strays(void) {
#ifdef SYS_close_range
    if (!syscall(SYS_close_range, REPORT_FD + 1, ~0U, 0))
        return;
#endif
    DIR *open = opendir("/proc/self/fd"); /* Linux before 5.9 */
    need(open ? 0 : -1, "session");
    for (struct dirent *entry; (entry = readdir(open));)
        if (atoi(entry->d_name) > REPORT_FD && atoi(entry->d_name) != dirfd(open))
            close(atoi(entry->d_name));
    closedir(open);
}

static void join(const char *entrance) {
    int procs = open(entrance, O_WRONLY);
    need(procs, "cgroup");
    need((int)write(procs, "0", 1), "cgroup");
    close(procs);
}

/* As os.execvp does, and not as the C library's: that one gives a file without a first line to a shell. Returns the errno. */
static int become(char **command) {
    if (strchr(command[0], '/')) {
        execve(command[0], command, environ);
        return errno;
    }
    const char *path = getenv("PATH");
    int worse = 0, last = ENOENT;
    for (const char *folder = path ? path : "/bin:/usr/bin"; folder;) {
        const char *end = strchrnul(folder, ':');
        char *file;
        need(asprintf(&file, "%.*s%s%s", (int)(end - folder), folder, end > folder ? "/" : "", command[0]), "exec");
        execve(file, command, environ);
        free(file);
        last = errno;
        if (last != ENOENT && last != ENOTDIR && !worse)
            worse = last;
        folder = *end ? end + 1 : NULL;
    }
    return worse ? worse : last;
}

int main(int count, char **given) {
    if (count <= COMMAND)
        return NOT_MINE;
    for (const char *line = given[CONFINEMENT]; *line; line += *line == '\n') {
        if (!after(line, "cgroup ") && !after(line, "subreaper "))
            return NOT_MINE;
        line = strchrnul(line, '\n');
    }
    need(setsid(), "session");
    pid_t parent = (pid_t)atol(given[PARENT]);
    if (parent != OUTLIVES) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(CANNOT);
    }
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    close_strays();
    need(fcntl(REPORT_FD, F_SETFD, *given[REPORT] ? 0 : FD_CLOEXEC), "session");
    for (char *line = strtok(given[CONFINEMENT], "\n"); line; line = strtok(NULL, "\n")) {
        const char *entrance = after(line, "cgroup ");
        if (entrance)
            join(entrance);
        else
            prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    }
    need(chdir(given[DIRECTORY]), "chdir");
    fail("exec", become(given + COMMAND));
}
