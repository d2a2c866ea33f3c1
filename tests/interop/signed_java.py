"""A JVM with Apache's client that signs and optionally encrypts, controlled by lines.

Owns that process (`java/Signed.java`); clients are created and closed in it, because a JVM starts more slowly.
"""

import subprocess
from pathlib import Path

JAVA = Path(__file__).with_name("java")


class SignedJava:
    """A JVM of Apache's client that signs; it does one thing after the other."""

    def __init__(self, jars: Path, home: Path) -> None:
        (home / "conf").mkdir(exist_ok=True)
        self._keys = home / "conf" / "tools.yml"
        self._tls = home / "conf" / "tls.properties"
        # mqadmin 4.9 does not do without.
        (home / "conf" / "logback_tools.xml").write_text("<configuration/>\n")
        command = [
            "java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars / 'lib'}/*",
            f"-Drocketmq.home.dir={home}", f"-Duser.home={home}", f"-Dtls.config.file={self._tls}",
            "-Dcom.rocketmq.sendMessageWithVIPChannel=false", str(JAVA / "Signed.java"),
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def ask(self, verb: str, user: str, *words: object) -> str:
        """Return its output. `user` is a name, followed by a space and the secret if that is not NAME-secret."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        name, _, wrong = user.partition(" ")
        secret = wrong or (f"{name}-secret" if name else "")
        # Where the tool of 4.9 has them from.
        self._keys.write_text(f"accessKey: {name}\nsecretKey: {secret}\n")
        process.stdin.write("\t".join([verb, name, secret, *map(str, words)]) + "\n")
        process.stdin.flush()
        printed: list[str] | None = None
        for line in process.stdout:
            if line == "begin\n":
                printed = []
            elif line == "done\n" and printed is not None:
                return "".join(printed)
            elif printed is not None:
                printed.append(line)
        raise AssertionError(f"the JVM has ended: {printed}")

    def use_tls(self, ca: str, cert: str = "", key: str = "") -> None:
        """Have clients started from now on use TLS, as Java's users set it up, and check the server's
        certificate."""
        self._tls.write_text(
            "tls.test.mode.enable=false\ntls.client.authServer=true\n"
            f"tls.client.trustCertPath={ca}\ntls.client.certPath={cert}\ntls.client.keyPath={key}\n"
        )
        self.ask("tls", "", "true")

    def use_no_tls(self) -> None:
        """Have clients started from now on not encrypt."""
        self.ask("tls", "", "false")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
