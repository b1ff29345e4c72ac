// SPDX-License-Identifier: MIT
// A mapped file beside a machine that uses SIGSEGV for itself: null checks that are faults, safepoints that are faults,
// and reads beyond the end of a file that are InternalError.
import java.io.RandomAccessFile;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.util.ArrayList;

class mapped {
	int value;

	static int nulls(mapped m) { // compiled: the check is the load itself
		try {
			return m.value;
		} catch (NullPointerException e) {
			return -1;
		}
	}

	static long work(MappedByteBuffer b, int me, int rounds) {
		mapped good = new mapped();
		long n = 0;

		for (int i = 0; i < rounds; i++) {
			int at = (i % 256) * 4096 + me * 8;

			b.putLong(at, b.getLong(at) + 1);
			good.value = i;
			n += nulls(i % 7 == 0 ? null : good) == (i % 7 == 0 ? -1 : i) ? 1 : 0;
			if (i % 20000 == 0) {
				byte[] garbage = new byte[1 << 20]; // collections stop all threads by a fault
				n += garbage[i % 100];
				b.force();
			}
		}
		return n;
	}

	static int deep(int n) { // until the stack overflows, which is a fault, too
		return 1 + deep(n + 1);
	}

	public static void main(String[] args) throws Exception {
		int rounds = Integer.parseInt(args[0]);
		ArrayList<Thread> threads = new ArrayList<>();
		long[] right = new long[4];

		try (RandomAccessFile f = new RandomAccessFile("java.dat", "rw")) {
			f.setLength(1 << 20);
			MappedByteBuffer b = f.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 1 << 20);

			for (int t = 0; t < 4; t++) {
				int me = t;
				Thread th = new Thread(() -> right[me] = work(b, me, rounds));

				threads.add(th);
				th.start();
			}
			for (Thread th : threads)
				th.join();
			for (int t = 0; t < 4; t++)
				System.out.println("right: " + right[t] + ", first " + b.getLong(t * 8));
			try {
				deep(0);
			} catch (StackOverflowError e) {
				System.out.println("stack overflow is told");
			}
			b.put(4096, (byte) 'x');
			b.force();
			f.setLength(8192);
			try {
				b.get(65536);
				System.out.println("nothing beyond the end");
			} catch (InternalError e) {
				System.out.println("beyond the end: InternalError");
			}
			System.out.println("within: " + (char) b.get(4096));
		}
	}
}
